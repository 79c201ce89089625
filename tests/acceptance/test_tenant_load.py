"""The load of one tenant delays the commands and the runs of another tenant by a bounded time."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path

import aio_pika
import orjson
import pytest
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, run_id, time_in
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.contract.amqp_names import tenant_exchange

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ATTACKER, VICTIM = "acme", "umbrella"
MAX_LATENESS = 2.0  # seconds, of each run of the victim
VICTIM_RUNS = 5
HANGING_CALLS = 90  # of two hosts
HANG = 15  # seconds
BACKLOG = 2_000  # runs of the attacker that are due at one time
RUNS_PER_SECOND = 50
MIN_WAIT = 0.5  # seconds between two attempts
ECHO = {"task": {"name": "harebell.echo"}}
BUSY_SCHEDULES = 300  # of the attacker, with a run each second
SLOTS = "8"  # of the lane, in which the backlog would take ten seconds
POLICY = f"""
tenants:
  {ATTACKER}:
    quotas:
      runs_per_second: {RUNS_PER_SECOND}
      puts_per_second: {BACKLOG}
      retry_min_wait: 500ms
"""


@pytest.fixture
def production(servers: Servers, tmp_path: Path) -> Iterator[Production]:
    """Yield a stack for one test, because a flood may outlast its test."""
    policy = tmp_path / "tenants.yml"
    policy.write_text(POLICY)
    with Production.open(servers, tmp_path, tenants=(ATTACKER, VICTIM)) as production:
        production.start(HAREBELL_TENANTS_FILE=str(policy), HAREBELL_SLOTS_NORMAL=SLOTS)
        yield production


@pytest.fixture
def other_host(tmp_path: Path) -> Iterator[Target]:
    """Yield a target with another port, which is another host for the executor."""
    with Target.open(tmp_path / "calls.jsonl") as opened:
        yield opened


async def victim_lateness(umbrella: Tenant, target: Target, path: str) -> list[float]:
    """Run some schedules of the victim, one after the other, and return their lateness [s]."""
    for number in range(VICTIM_RUNS):
        await umbrella.put(f"{path}-{number}", {"now": True}, target.http(path))
        await asyncio.sleep(0.2)
    await until(lambda: _called(target, path), what=f"{VICTIM_RUNS} calls of {path}")
    return [call.late for call in target.calls(path)]


async def _called(target: Target, path: str, count: int = VICTIM_RUNS) -> bool:
    return len(target.calls(path)) >= count


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("P6")
async def test_runs_start_while_another_tenant_has_a_backlog_in_the_lane(
    production: Production, target: Target
) -> None:
    async with production.tenant(ATTACKER) as acme, production.tenant(VICTIM) as umbrella:
        due = time_in(5)
        flood = [
            {
                "key": f"flood-{number}",
                "when": {"at": due.isoformat()},
                "target": target.http("flood", sleep=0.03),
                "expires_after": "5s",
            }
            for number in range(BACKLOG)
        ]
        for start in range(0, BACKLOG, 500):
            answers = await acme.harebell.put_many(flood[start : start + 500])
            assert all(answer.ok for answer in answers)
        await asyncio.sleep(max(0.0, (due - time_in(0)).total_seconds()))

        late = await victim_lateness(umbrella, target, "punctual")
        flooded = len(target.calls("flood"))

    assert max(late) < MAX_LATENESS
    assert flooded > 0


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("P6")
async def test_runs_start_while_another_tenant_calls_two_hosts_that_hang(
    production: Production, target: Target, other_host: Target
) -> None:
    async with production.tenant(ATTACKER) as acme, production.tenant(VICTIM) as umbrella:
        for number in range(HANGING_CALLS):
            host = (target, other_host)[number % 2]
            await acme.put(
                f"hang-{number}",
                {"now": True},
                host.http("hang", sleep=HANG),
                retry={"max_attempts": 1},
                expires_after="10s",
            )
        await until(lambda: _hangs(target), what="a hanging call")

        late = await victim_lateness(umbrella, target, "quick")

    assert max(late) < MAX_LATENESS


async def _hangs(target: Target) -> bool:
    return len(target.calls("hang")) > 1


@pytest.mark.long
@pytest.mark.requirement("P6")
async def test_no_attempt_follows_another_one_before_the_minimum_wait_of_the_tenant(
    production: Production, target: Target
) -> None:
    eager = {"max_attempts": 1_000, "backoff": {"base": "0s", "cap": "0s", "jitter": "none"}}
    async with production.tenant(ATTACKER) as acme:
        broken = target.http("eager", broken="eager")
        # The calls of the other tests occupy this tenant's share of the normal lane for a while.
        await acme.put("eager", {"now": True}, broken, retry=eager, priority=9)
        await until(lambda: _repeats(target), what="five attempts")
        target.fix("eager")
        await until(lambda: _succeeds(acme), what="the end of the retries")

    started = [call.started_at for call in target.calls("eager")]
    gaps = [(after - before).total_seconds() for before, after in pairwise(started)]
    assert min(gaps) >= MIN_WAIT


async def _repeats(target: Target) -> bool:
    return len(target.calls("eager")) >= 5


async def _succeeds(acme: Tenant) -> bool:
    rows = await acme.ledger.fetch(
        "SELECT state FROM runs JOIN schedules ON id = schedule_id WHERE key = 'eager'"
    )
    return [row["state"] for row in rows] == ["succeeded"]


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("P6")
async def test_runs_start_while_another_tenant_names_them_and_keeps_its_own_rows_busy(
    production: Production, target: Target
) -> None:
    """The commands to rows of the victim are refused, and must not lock these rows before."""
    async with production.tenant(ATTACKER) as acme, production.tenant(VICTIM) as umbrella:
        await acme.harebell.put_many(
            [
                {"key": f"busy-{k}", "when": {"every": "1s"}, "target": ECHO, "tags": ["busy"]}
                for k in range(BUSY_SCHEDULES)
            ]
        )
        steady = await umbrella.put("steady", {"every": "1s"}, target.http("steady"))
        first = (await umbrella.harebell.schedule(key="steady")).next_at
        assert first is not None
        run_ids = [run_id(steady, first + timedelta(seconds=k)) for k in range(60)]
        flood = asyncio.create_task(keep_rows_busy(production, run_ids))

        await until(lambda: _called(target, "steady", 15), what="15 calls of the victim")
        assert not flood.done(), "the flood must last during the measurement"
        flood.cancel()
        await umbrella.harebell.cancel(key="steady")

    assert max(call.late for call in target.calls("steady")) < MAX_LATENESS


async def keep_rows_busy(production: Production, run_ids: Sequence[str]) -> None:
    """Change all own schedules, and cancel runs of another tenant, until the cancellation."""
    requests = [
        ("run.cancel", [{"run_id": each} for each in run_ids] * 8),
        ("schedule.pause", {"select": {"tag": "busy"}}),
        ("run.cancel", [{"run_id": each} for each in run_ids] * 8),
        ("schedule.resume", {"select": {"tag": "busy"}}),
    ]
    async with await aio_pika.connect(production.url(ATTACKER)) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(tenant_exchange(ATTACKER), ensure=False)
        for number in count():
            for index, (verb, body) in enumerate(requests):
                message = aio_pika.Message(
                    orjson.dumps(body), user_id=ATTACKER, message_id=f"busy-{number}-{index}"
                )
                await exchange.publish(message, f"{ATTACKER}.{verb}")
            await asyncio.sleep(0.05)
