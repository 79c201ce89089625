"""Hosts of a tenant whose name server never answers delay no call of another tenant."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.acceptance.floods import FLOOD, VICTIM, ended_runs
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.rig.servers import Servers
from tests.rig.silent_names import ANSWERED, silent_names

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.measures,
    pytest.mark.broker_version,
    pytest.mark.skipif(os.geteuid() != 0, reason="A private resolv.conf needs root."),
]

HOSTS = 400  # that the flood calls every second
RUNS = 10  # of the victim
MAX_LATENESS = 2.0  # seconds from the due time of a run to its start, by the promise
SETTLING = 8.0  # seconds until look-ups of the flood wait for their places and time out
TIMEOUT = 60.0  # seconds
# Quotas would refuse the flood, which then would be no flood.
POLICIES = """
defaults:
  quotas: {schedules: null, puts_per_second: null, runs_per_second: null, concurrent_runs: null}
"""


@pytest.fixture
def production(servers: Servers, tmp_path: Path) -> Iterator[Production]:
    policies = tmp_path / "tenants.yml"
    policies.write_text(POLICIES)
    with (
        silent_names(tmp_path) as start,
        Production.open(servers, tmp_path, tenants=(FLOOD, VICTIM), start=start) as production,
    ):
        production.start(tenants_file=policies)
        yield production


@pytest.mark.requirement("P6")
async def test_hosts_without_an_answer_delay_no_call_of_another_tenant(
    production: Production, target: Target, record_property: Any
) -> None:
    once = {"retry": {"max_attempts": 1}, "when": {"every": "1s"}}
    async with production.client(FLOOD, timeout=TIMEOUT) as flooder:
        await flooder.put_many(
            [
                once | {"key": f"host-{n}", "target": {"http": {"url": f"http://h{n}.silent.test"}}}
                for n in range(HOSTS)
            ]
        )
    await asyncio.sleep(SETTLING)

    ids = []
    url = target.url("known").replace("127.0.0.1", ANSWERED)
    async with production.tenant(VICTIM) as victim:
        for _ in range(RUNS):
            now = {"key": str(uuid4()), "when": {"now": True}, "target": {"http": {"url": url}}}
            ids.append((await victim.harebell.put(now)).id)
            await asyncio.sleep(0.5)
        runs = await ended_runs(victim, ids)
        unanswered = await victim.ledger.fetchval(
            "SELECT count(*) FROM attempts WHERE error_code = 'dns_failed'"
        )
    calls = target.calls("known")
    latest = max(run["started_at"] - run["due_at"] for run in runs).total_seconds()
    slowest = max(run["finished_at"] - run["started_at"] for run in runs).total_seconds()
    record_property("lateness", f"{latest:.3f} s, {slowest:.3f} s, {unanswered} unanswered")

    assert unanswered > 0, "the flood must have look-ups without an answer"
    assert len(calls) == RUNS
    assert latest < MAX_LATENESS
    assert slowest < MAX_LATENESS
