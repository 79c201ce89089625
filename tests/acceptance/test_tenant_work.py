"""Work of one tenant that is large for its size delays another tenant by a bounded time.

Each flood has a stack of its own, because the rest of a flood would delay the next test too.
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any
from uuid import uuid4

import orjson
import pytest
from tests.acceptance.floods import (
    FLOOD,
    MAX_ANSWER,
    TARGET,
    VICTIM,
    Flood,
    ended_runs,
    flood_of,
    list_schedules,
    request_times,
)
from tests.acceptance.production import Production
from tests.rig.servers import Servers

from harebell.contract.calendar import WEEKDAYS

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.measures,
    pytest.mark.broker_version,
]

ITEMS = 500  # of one message
COUNTED_WITHIN = 25.0  # seconds, in which the ticker counts the planned runs at least once
NEVER = "2049-01-01T00:00:00Z"
MAX_START = 2.0  # seconds from the due time to the start of a run of the victim
# Quotas would refuse the flood, which then would be no flood.
POLICIES = f"""
defaults: {{quotas: {{schedules: null, puts_per_second: null, backfill_runs: null}}}}
tenants: {{{FLOOD}: {{}}, {VICTIM}: {{}}}}
"""


@pytest.fixture
def production(
    servers: Servers, longest_answer: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    del longest_answer  # the services start with the priority of this process
    root = tmp_path_factory.mktemp("tenant-work")
    policies = root / "tenants.yml"
    policies.write_text(POLICIES)
    with Production.open(servers, root, tenants=(FLOOD, VICTIM)) as production:
        production.start(tenants_file=policies)
        yield production


def rare_rules(number: int) -> list[dict[str, str]]:
    """Return 16 rules with times on 29 February."""
    return [{"cron": f"{(16 * number + rule) % 60} {number % 24} 29 2 *"} for rule in range(16)]


def hours() -> list[dict[str, Any]]:
    """Return half an hour on each of 20 mornings and evenings."""
    return [
        {
            "weekdays": [WEEKDAYS[each % 7]],
            "from": f"{each:02}:0{each % 7}",
            "to": f"{each:02}:3{each % 7}",
        }
        for each in range(20)
    ]


ZONES = ("America/New_York", "Asia/Kolkata", "Pacific/Apia", "Europe/Berlin")
# Each search for a time examines sixty days for four calendars.
MOVED = {
    "key": "moved",
    "when": {"any_of": [{"cron": f"{each} 3 * * *", "timezone": ZONES[3]} for each in range(4)]},
    "target": TARGET,
    "calendars": {"include": [f"hours-{n}" for n in range(4)], "on_excluded": "next"},
}
MINUTELY = {
    "key": "minutely",
    "when": {"any_of": [{"cron": f"{each}-59 * * * *"} for each in range(16)]},
    "target": TARGET,
}
RARE = [
    {"key": f"rare-{n}", "when": {"any_of": rare_rules(n)}, "target": TARGET, "tags": ["rare"]}
    for n in range(20)
]
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DRY_RUN = {
    "from": (TODAY - timedelta(days=28)).isoformat(),
    "to": TODAY.isoformat(),
    "max": 1_000,
    "dry_run": True,
}
DEAD_LETTER = {
    "kind": "message",
    "payload": {
        "queue": "acme.work",
        "tenant": FLOOD,
        "routing_key": "acme.schedule.put",
        "reason": "expired",
        "dead_at": TODAY.isoformat(),
        "body": "eA==",
    },
}
FLOODS_OF_WORK = [
    Flood(verb="dlq.list", number=8_000, body=b'{"limit": 500}'),
    Flood(
        verb="schedule.preview",
        number=8_000,
        body=orjson.dumps({"key": "moved", "count": 100}),
    ),
    Flood(
        verb="schedule.preview",
        number=8_000,
        body=orjson.dumps(
            {"definition": {"when": {"any_of": rare_rules(1)}, "target": TARGET}, "count": 100}
        ),
    ),
    Flood(verb="schedule.why", number=8_000, body=orjson.dumps({"key": "moved"})),
    Flood(
        verb="run.forecast",
        number=8_000,
        body=orjson.dumps(
            {
                "from": (TODAY + timedelta(days=23)).isoformat(),
                "to": (TODAY + timedelta(days=30)).isoformat(),
            }
        ),
    ),
    Flood(
        verb="schedule.backfill",
        number=20,
        body=orjson.dumps([{"key": "moved", **DRY_RUN}] * 4),
    ),
    Flood(
        verb="schedule.backfill",
        number=20,
        body=orjson.dumps([{"key": "minutely", **DRY_RUN}] * 20),
    ),
    Flood(
        verb="schedule.trigger",
        number=30,
        body=orjson.dumps([{"key": f"rare-{n % 20}"} for n in range(ITEMS)]),
    ),
    Flood(
        verb="schedule.put",
        number=1_000,
        body=orjson.dumps(
            [{"key": "x" * 20, "when": {"cron": "x" * 20}, "target": TARGET}] * ITEMS
        ),
    ),
    Flood(verb="schedule.list", number=40_000, body=b'{"limit": "' + b"x" * 1000 + b'"}'),
    Flood(
        verb="dlq.import",
        number=4_000,
        body=orjson.dumps({"dead_letters": [DEAD_LETTER] * 100}),
    ),
    Flood(
        verb="schedule.patch",
        number=20,
        body=orjson.dumps(
            [{"key": f"rare-{n % 20}", "set": {"priority": 1 + n % 9}} for n in range(ITEMS)]
        ),
    ),
    Flood(verb="schedule.pause", number=30_000, body=orjson.dumps({"select": {"tag": "rare"}})),
]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    "flood", FLOODS_OF_WORK, ids=lambda flood: f"{flood.verb}-{len(flood.body)}"
)
async def test_work_of_a_tenant_delays_no_command_and_no_run_of_another_tenant(
    production: Production, longest_answer: float, record_property: Any, flood: Flood
) -> None:
    """Flood with requests whose work is large for their size."""
    async with production.client(FLOOD, timeout=60) as flooder:
        for number, zone in enumerate(ZONES):
            await flooder.put_calendar(f"hours-{number}", timezone=zone, weekly=hours())
        await flooder.put_many([*RARE, MINUTELY, MOVED])
    async with (
        production.client(VICTIM, timeout=60) as victim,
        production.stack.tenant(VICTIM) as rows,
    ):
        await request_times(victim, 3, list_schedules)
        now = {"when": {"now": True}, "target": TARGET}
        async with flood_of(flood, production.url(FLOOD)) as answered:
            busy, ids = [], []
            for _ in range(12):
                started_at = time.monotonic()
                response = await victim.put({"key": str(uuid4()), **now})
                busy.append(time.monotonic() - started_at)
                ids.append(response.id)
                await asyncio.sleep(0.2)
            queries = await request_times(victim, 5, list_schedules)
            number = answered()
            runs = await ended_runs(rows, ids)
    lateness = max(run["started_at"] - run["due_at"] for run in runs).total_seconds()
    record_property(
        "answer",
        f"put {median(busy):.3f} s, longest {max(busy):.3f} s, query {max(queries):.3f} s, "
        f"start {lateness:.3f} s, {number} answered",
    )

    assert 0 < number < flood.number, "the flood must last during the measurement"
    assert median(busy) < MAX_ANSWER, busy
    assert max(busy) < longest_answer, busy
    assert lateness < MAX_START + longest_answer - MAX_ANSWER, lateness


@pytest.mark.requirement("P6")
async def test_planned_runs_of_a_tenant_delay_no_command_of_another_tenant(
    production: Production, longest_answer: float, record_property: Any
) -> None:
    """Store schedules due soon that need many milliseconds each time the ticker counts them."""
    now = datetime.now(UTC)
    names = [f"later-{number}" for number in range(4)]
    soon = [now + timedelta(minutes=15 + each) for each in range(4)]
    when = {"any_of": [{"cron": f"{each.minute} {each.hour} * * *"} for each in soon]}
    calendars = {"exclude": names, "on_excluded": "next"}
    async with production.client(FLOOD, timeout=60) as flooder:
        for number, name in enumerate(names):
            await flooder.put_calendar(name, timezone="UTC", weekly=later_hours(now, number))
        schedule = {"calendars": calendars, "target": TARGET}
        # Schedules with equal rules are computed once, so each begins at another second.
        starts = [(now - timedelta(days=1, seconds=n)).isoformat() for n in range(ITEMS)]
        await flooder.put_many(
            [{"key": at, "when": {**when, "start": at}, **schedule} for at in starts]
        )
    busy = []
    async with production.client(VICTIM, timeout=60) as victim:
        until = time.monotonic() + COUNTED_WITHIN
        while time.monotonic() < until:
            started_at = time.monotonic()
            await victim.put({"key": str(uuid4()), "when": {"at": NEVER}, "target": TARGET})
            busy.append(time.monotonic() - started_at)
            await asyncio.sleep(0.1)
    record_property("answer", f"put {median(busy):.3f} s, longest {max(busy):.3f} s")

    assert median(busy) < MAX_ANSWER, busy
    assert max(busy) < longest_answer, busy


def later_hours(now: datetime, number: int) -> list[dict[str, Any]]:
    """Return half an hour in each of 20 hours that begin at least two hours from now."""
    return [
        {
            "weekdays": [WEEKDAYS[(each + number) % 7]],
            "from": f"{(now.hour + 2 + each) % 24:02}:0{each % 7}",
            "to": f"{(now.hour + 2 + each) % 24:02}:3{each % 7}",
        }
        for each in range(20)
    ]
