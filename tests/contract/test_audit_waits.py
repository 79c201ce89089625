"""The statements of the audit about waiting runs and silent pools, against PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson
import pytest
from tests.rig.servers import as_role

from harebell.audit.liveness import find_missed_heartbeats
from harebell.audit.model.rate_waits import SLOT
from harebell.audit.model.records import Window
from harebell.audit.model.report import MissedHeartbeat
from harebell.audit.model.waits import (
    MAX_UNCHANGED,
    DeferredRange,
    LabelWait,
    OverlapWait,
    Waits,
)
from harebell.audit.rates import load_rate_ranges
from harebell.audit.store import connect_read_only
from harebell.audit.waits import load_labels, load_overlaps, load_waits
from harebell.contract.downstream import downstream_of_json
from harebell.contract.ids import RunKey
from harebell.domain.tenant_policy import TenantPolicies

pytestmark = pytest.mark.postgres

NOW: Final = datetime.now(UTC).replace(microsecond=0)
LATER: Final = 2 * 3600.0  # seconds; a suite needs less between its import and a test
LATE: Final = timedelta(hours=3)  # longer than the time from the import to the last test
WINDOW: Final = Window(since=NOW - timedelta(hours=1), until=NOW, now=NOW)
SCHEDULE: Final = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
DOWN, OTHER = (
    downstream_of_json({"http": {"url": f"https://{host}.example/x"}}) for host in ("down", "other")
)
EDITED: Final = orjson.dumps({"target": {"http": {"url": "https://other.example/x"}}}).decode()
TABLES: Final = (
    "attempts",
    "runs",
    "overlap_slots",
    "label_slots",
    "schedule_versions",
    "schedule_state",
    "breakers",
    "breaker_deferrals",
    "tenant_breakers",
    "tenant_breaker_deferrals",
)

_INSERT_VERSION: Final = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, run_spec, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, '{}', '{"target": {"http": {"url": "https://down.example/x"}}}', '', now(), now())
"""


_INSERT_ATTEMPTS: Final = """
INSERT INTO attempts
    (scheduled_for, schedule_id, replay_number, number, outcome, started_at, finished_at)
SELECT $1, $2, 0, number, 'succeeded', $3, $3 FROM generate_series(1, 3) AS number
"""


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    await connection.execute(_INSERT_VERSION, SCHEDULE)
    try:
        yield connection
    finally:
        for table in TABLES:
            await connection.execute(f"DELETE FROM {table}")  # noqa: S608  # names of tables
        await connection.close()


@pytest.fixture
async def auditor(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    async with connect_read_only(as_role(database_url, "auditor")) as connection:
        yield connection


async def insert_run(owner: asyncpg.Connection, due: float, **columns: Any) -> datetime:
    """Insert a run of the failing downstream, due this number of seconds ago."""
    values = {
        "scheduled_for": ago(due),
        "schedule_id": SCHEDULE,
        "tenant": "acme",
        "version": 1,
        "seq": 1,
        "pool": "default",
        "lane": "normal",
        "priority": 5,
        "state": "staged",
        "due_at": ago(due),
        "staged_at": ago(due + 5),
    } | columns
    places = ", ".join(f"${number}" for number, _ in enumerate(values, 1))
    await owner.execute(
        f"INSERT INTO runs ({', '.join(values)}) VALUES ({places})",  # noqa: S608  # names of columns
        *values.values(),
    )
    return ago(due)


def deferrals(**ranges: tuple[float, float]) -> Waits:
    names = {"down": DOWN, "other": OTHER}
    return Waits(
        deferrals={
            (None, names[name]): [DeferredRange(ago(since), ago(until))]
            for name, (since, until) in ranges.items()
        }
    )


async def silent_pools(auditor: asyncpg.Connection, waits: Waits) -> list[tuple[str, datetime]]:
    found = await find_missed_heartbeats(auditor, LATE, waits)
    return [(each.component, each.since) for each in found]


async def test_pool_is_silent_when_a_due_run_waits_for_no_breaker(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    await insert_run(owner, 30_000)
    waits = deferrals(down=(30_000, 0))
    held = await silent_pools(auditor, waits)
    without_breaker = await silent_pools(auditor, Waits())

    edited = await insert_run(owner, 20_000, override=EDITED)  # another downstream
    with_stuck = await silent_pools(auditor, waits)
    both_held = await silent_pools(auditor, deferrals(down=(30_000, 0), other=(20_000, 0)))

    assert held == []
    assert without_breaker == [("pool default", ago(30_000))]
    assert with_stuck == [("pool default", edited)]
    assert both_held == []


async def test_pool_is_silent_again_after_the_release_of_deferred_runs(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    await insert_run(owner, 60_000)

    assert await silent_pools(auditor, deferrals(down=(60_000, 300))) == []
    assert await silent_pools(auditor, deferrals(down=(60_000, 12_000))) == [
        ("pool default", ago(60_000))
    ]


async def test_pool_is_not_silent_while_a_catch_up_has_just_staged_its_runs(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    await insert_run(owner, 60_000, staged_at=ago(100))
    caught_up = await silent_pools(auditor, Waits())
    copy = {"staged_at": ago(100), "republished_at": ago(100), "first_staged_at": ago(59_000)}
    await insert_run(owner, 70_000, pool="copied", **copy)

    assert caught_up == []
    assert await silent_pools(auditor, Waits()) == [("pool copied", ago(59_000))]


async def test_pool_with_a_valid_lease_is_not_silent(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    await insert_run(owner, 30_000)
    lease = {"lease_holder": "e", "lease_until": NOW + timedelta(hours=1), "attempt": 1}
    await insert_run(owner, 20_000, state="running", **lease)

    assert await silent_pools(auditor, Waits()) == []


@pytest.mark.parametrize(("changed", "is_silent"), [(300, False), (12_000, True)])
async def test_ticker_is_silent_when_it_has_not_read_a_resumed_schedule(
    owner: asyncpg.Connection, auditor: asyncpg.Connection, changed: float, *, is_silent: bool
) -> None:
    await owner.execute(
        "INSERT INTO schedule_state VALUES ($1, 1, 'active', NULL, $2, $3, $2, 0, '{}')",
        SCHEDULE,
        ago(60_000),
        ago(changed),
    )

    found = await find_missed_heartbeats(auditor, LATE)

    assert found == ([MissedHeartbeat("ticker", ago(changed))] if is_silent else [])


async def test_load_waits_returns_ended_and_lasting_deferrals(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    for name, since, until in (
        (DOWN, ago(900), ago(800)),
        (DOWN, ago(400), None),
        (OTHER, ago(90_000), ago(80_000)),
    ):
        await owner.execute("INSERT INTO breaker_deferrals VALUES ($1, $2, $3)", name, since, until)
    await owner.execute(
        "INSERT INTO breakers (downstream, state, since) VALUES ($1, 'half_open', $2)",
        DOWN,
        ago(30),
    )

    waits = await load_waits(auditor, WINDOW)

    assert waits.deferrals == {
        (None, DOWN): [DeferredRange(ago(900), ago(800)), DeferredRange(ago(400), NOW)],
    }


@pytest.mark.requirement("P5")
async def test_load_waits_returns_the_deferrals_of_one_tenant_apart(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    for since, until in ((ago(900), ago(800)), (ago(400), None)):
        await owner.execute(
            "INSERT INTO tenant_breaker_deferrals VALUES ('acme', $1, $2, $3)", DOWN, since, until
        )
    await owner.execute(
        "INSERT INTO tenant_breakers (tenant, downstream, state, since) "
        "VALUES ('acme', $1, 'open', $2)",
        DOWN,
        ago(30),
    )

    waits = await load_waits(auditor, WINDOW)

    ranges = [DeferredRange(ago(900), ago(800)), DeferredRange(ago(400), NOW)]
    assert waits.deferrals == {("acme", DOWN): ranges}


@pytest.mark.parametrize("is_probed", [True, False])
async def test_old_half_open_breaker_defers_while_an_attempt_probes_it(
    owner: asyncpg.Connection, auditor: asyncpg.Connection, *, is_probed: bool
) -> None:
    age = MAX_UNCHANGED.total_seconds() + 300
    await owner.execute(
        "INSERT INTO breakers (downstream, state, since) VALUES ($1, 'half_open', $2)",
        DOWN,
        ago(age),
    )
    lease_until = NOW + timedelta(hours=1 if is_probed else -1)
    await insert_run(owner, 900, state="running", lease_holder="e", lease_until=lease_until)

    waits = await load_waits(auditor, WINDOW)

    assert waits.deferrals[None, DOWN] == [DeferredRange(ago(age), NOW if is_probed else ago(300))]


WAITING = {"reason": "waiting_for_overlap"}


@pytest.mark.parametrize(
    ("other", "role", "expected"),
    [
        ({"state": "running"}, "running", OverlapWait(is_occupied=True, free_since=None)),
        ({"state": "unresolved"}, "running", OverlapWait(is_occupied=True, free_since=None)),
        ({"state": "retrying"}, "running", OverlapWait(is_occupied=True, free_since=None)),
        ({"state": "staged"}, "running", OverlapWait(is_occupied=True, free_since=None)),
        (
            {"state": "cancelled", "finished_at": ago(40)},
            "running",
            OverlapWait(is_occupied=False, free_since=ago(40)),
        ),
        (
            WAITING | {"staged_at": ago(50)},
            "waiting",
            OverlapWait(is_occupied=False, free_since=ago(50)),
        ),
        (WAITING, "waiting", OverlapWait(is_occupied=False, free_since=None)),
    ],
)
async def test_load_overlaps_returns_whether_another_run_has_the_slot(
    owner: asyncpg.Connection,
    auditor: asyncpg.Connection,
    other: dict[str, Any],
    role: str,
    expected: OverlapWait,
) -> None:
    slots = {await insert_run(owner, 300, **WAITING): "waiting"}
    slots[await insert_run(owner, 400, **other)] = role
    for time, each in slots.items():
        await owner.execute(
            "INSERT INTO overlap_slots VALUES ($1, $2, $3, now())", SCHEDULE, time, each
        )

    assert await load_overlaps(auditor, [SCHEDULE]) == {SCHEDULE: expected}


@pytest.mark.requirement("S113", "P6")
async def test_load_rate_ranges_returns_only_the_tenants_above_their_rate(
    owner: asyncpg.Connection, auditor: asyncpg.Connection
) -> None:
    """Five runs, and two more attempts of one of them, are above a rate of 0.4 per second."""
    slot = 600 + NOW.timestamp() % SLOT.total_seconds()  # seconds since the begin of a slot
    for number in range(5):
        await insert_run(owner, slot - number / 10, tenant="acme")
        await insert_run(owner, slot + 100 - number / 10, tenant="stark")
    await owner.execute(_INSERT_ATTEMPTS, ago(slot), SCHEDULE, ago(slot - 1))
    rates = {"acme": 0.4, "stark": 1.1}
    quotas = {name: {"quotas": {"runs_per_second": rate}} for name, rate in rates.items()}
    policies = TenantPolicies.parse({"tenants": quotas})

    found = await load_rate_ranges(auditor, WINDOW, policies)
    without = await load_rate_ranges(auditor, WINDOW, TenantPolicies.unrestricted())

    assert found.keys() == {"acme"}
    [first] = found["acme"]
    assert first.since == ago(slot)
    assert first.until - first.since >= timedelta(seconds=7 / rates["acme"])
    assert without == {}


@pytest.mark.parametrize(
    ("other", "role", "expected"),
    [
        ({"state": "running"}, "running", (True, 10)),
        ({"state": "cancelled", "finished_at": ago(5)}, "running", (False, 5)),
        ({"state": "staged"}, "reserved", (True, -LATER)),
        ({"state": "retrying"}, "running", (True, 10)),
    ],
)
async def test_load_labels_returns_whether_other_runs_have_all_slots(
    owner: asyncpg.Connection,
    auditor: asyncpg.Connection,
    other: dict[str, Any],
    role: str,
    expected: tuple[bool, int],
) -> None:
    label = {"reason": "waiting_for_label"}
    rows = [
        (await insert_run(owner, 300, **label), "waiting", None),
        (await insert_run(owner, 200, **label), "waiting", None),
        (await insert_run(owner, 400, **other), role, ago(-LATER) if role == "reserved" else None),
    ]
    for time, each, until in rows:
        await owner.execute(
            "INSERT INTO label_slots VALUES ($1, $2, 'acme', 'db', 1, $2, $3, $4, $5)",
            SCHEDULE,
            time,
            each,
            ago(10),
            until,
        )

    is_occupied, free = expected
    assert await load_labels(auditor, [SCHEDULE]) == {
        RunKey(rows[0][0], SCHEDULE): LabelWait(is_occupied=is_occupied, free_since=ago(free))
    }
