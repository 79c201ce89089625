"""A replay job has a fixed set of dead letters and can be aborted by its failures."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.fakes.publisher import FakePublisher
from tests.integration.dlq_inspector.environment import (
    NINE,
    TIMEOUT,
    DlqEnvironment,
    dead_letter_id,
)
from tests.rig.polling import until

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.commands import ReplayJobStart
from harebell.contract.dead_letter import DeadRun, OpenDeadLetterFilter
from harebell.contract.downstream import downstream_of_json
from harebell.contract.ids import RunKey
from harebell.contract.types import truncate_ms
from harebell.contract.views import ReplayJobDetail
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time

ALL = {"all": True}
OPEN_BREAKER = """
INSERT INTO breakers (downstream, state, since, next_probe_at) VALUES ($1, 'open', now(), $2)
"""


async def add_dead_runs(environment: DlqEnvironment, number: int) -> list[DeadRun]:
    dead = [await environment.add_dead_run(n) for n in range(number)]
    await environment.wait_for_dead_letters(number)
    return dead


async def send(
    environment: DlqEnvironment, verb: str, request_id: str = "r-1", **body: Any
) -> dict[str, Any]:
    item = AcceptedCommand(index=0, request_id=request_id, body=body)
    await environment.send_items(f"dlq.replay_job.{verb}", item)
    response: dict[str, Any] = await environment.next_response()
    return response


async def start_job(environment: DlqEnvironment, request_id: str = "r-1", **body: Any) -> UUID:
    response = await send(environment, "start", request_id, **body)
    assert response["status"] == "started"
    return UUID(response["id"])


async def wait_for_job(environment: DlqEnvironment, job: UUID, **fields: Any) -> ReplayJobDetail:
    """Return the replay job as soon as it has these fields."""

    async def found() -> ReplayJobDetail | None:
        view = await environment.acme.replay_job(job)
        return view if has_fields(view, fields) else None

    view = await until(found, within=TIMEOUT, what=f"a replay job with {fields}")
    assert view is not None
    return view


def has_fields(view: ReplayJobDetail, fields: dict[str, Any]) -> bool:
    return all(getattr(view, name) == value for name, value in fields.items())


async def end_runs(environment: DlqEnvironment, dead: Sequence[DeadRun], state: str) -> None:
    for each in dead:
        await environment.set_run_state(state, RunKey.parse(each.run_id))


async def replay_numbers(environment: DlqEnvironment, dead: Sequence[DeadRun]) -> list[int]:
    return [(await environment.run_row(each))["replay_number"] for each in dead]


@pytest.mark.requirement("S112")
async def test_job_replays_all_open_dead_letters_and_shows_their_outcomes(
    dlq: DlqEnvironment,
) -> None:
    dead = await add_dead_runs(dlq, 3)

    job = await start_job(dlq, select=ALL, note="after the fix")
    await wait_for_job(dlq, job, taken=3, replayed=3, state="running")
    assert await replay_numbers(dlq, dead) == [1, 1, 1]
    await end_runs(dlq, dead[:2], "succeeded")
    await end_runs(dlq, dead[2:], "dead")

    view = await wait_for_job(dlq, job, state="done", succeeded=2, failed=1)
    assert (view.actor, view.note, view.total) == ("ann", "after the fix", 3)
    start = ReplayJobStart.model_validate(view.request)
    assert (start.select, bool(view.finished_at)) == (OpenDeadLetterFilter(**ALL), True)
    items = [item async for item in dlq.acme.replay_job_items(job)]
    assert [(item.id, item.status, item.outcome) for item in items] == [
        *((dead_letter_id(each), "replayed", "succeeded") for each in dead[:2]),
        (dead_letter_id(dead[2]), "replayed", "dead"),
    ]
    [line] = [row async for row in dlq.acme.replay_jobs()]
    assert line.id == job


@pytest.mark.requirement("ASK-2")
async def test_job_has_the_dead_letters_that_were_open_at_its_start(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 2)
    another = "UPDATE dead_letters SET error_code = 'x' WHERE id = $1"
    await dlq.database.execute(another, dead_letter_id(dead[1]))

    job = await start_job(dlq, select={"error": "http_503"}, rate=0.001)
    later = await dlq.add_dead_run(7)
    await dlq.wait_for_dead_letters(3)

    view = await wait_for_job(dlq, job, taken=1)
    assert (view.total, view.remaining) == (1, 0)
    assert await replay_numbers(dlq, [*dead, later]) == [1, 0, 0]


@pytest.mark.requirement("ASK-2")
async def test_repeated_command_starts_no_second_job(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 1)

    first, second = [await start_job(dlq, select=ALL) for _ in range(2)]

    assert first == second
    await wait_for_job(dlq, first, taken=1)
    assert await replay_numbers(dlq, dead) == [1]
    assert (await send(dlq, "start", "r-2", select=ALL))["error"]["code"] == "not_found"


@pytest.mark.requirement("ASK-2")
async def test_dry_run_returns_the_number_and_replays_nothing(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 2)

    response = await send(dlq, "start", select=ALL, dry_run=True)

    assert (response["status"], response["total"]) == ("previewed", 2)
    assert [row async for row in dlq.acme.replay_jobs()] == []
    assert await replay_numbers(dlq, dead) == [0, 0]


@pytest.mark.requirement("ASK-2")
async def test_failed_canary_aborts_the_job_and_leaves_the_others_open(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 5)

    job = await start_job(dlq, select=ALL, canary=2)
    await wait_for_job(dlq, job, taken=2)
    await end_runs(dlq, dead[:1], "succeeded")
    await end_runs(dlq, dead[1:2], "dead")

    view = await wait_for_job(dlq, job, state="aborted", succeeded=1, failed=1)
    assert (view.reason, view.remaining) == ("canary_failed", 3)
    assert await replay_numbers(dlq, dead) == [1, 1, 0, 0, 0]
    still = [row.id async for row in dlq.acme.dead_letters()]
    assert set(still) == {dead_letter_id(each) for each in dead[2:]}


@pytest.mark.requirement("ASK-2")
async def test_job_continues_after_a_successful_canary(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 3)

    job = await start_job(dlq, select=ALL, canary=1)
    await wait_for_job(dlq, job, taken=1)
    await end_runs(dlq, dead[:1], "succeeded")

    await wait_for_job(dlq, job, taken=3)
    await end_runs(dlq, dead[1:], "succeeded")
    await wait_for_job(dlq, job, state="done", succeeded=3)


@pytest.mark.requirement("ASK-2")
async def test_job_aborts_when_the_failure_ratio_is_exceeded(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 4)

    job = await start_job(dlq, select=ALL, abort_on_failure_ratio=0.5)
    await wait_for_job(dlq, job, taken=4)
    await end_runs(dlq, dead, "dead")

    view = await wait_for_job(dlq, job, state="aborted")
    assert (view.reason, view.failed) == ("failure_ratio", 4)


@pytest.mark.requirement("ASK-2")
async def test_job_is_paused_resumed_and_aborted_by_commands(dlq: DlqEnvironment) -> None:
    dead = await add_dead_runs(dlq, 3)
    job = await start_job(dlq, select=ALL, rate=0.001)
    await wait_for_job(dlq, job, taken=1)

    responses = [
        await send(dlq, verb, id=str(job)) for verb in ("pause", "pause", "resume", "abort")
    ]

    assert [(each["status"], each["state"]) for each in responses] == [
        ("paused", "paused"),
        ("unchanged", "paused"),
        ("resumed", "running"),
        ("aborted", "aborted"),
    ]
    view = await wait_for_job(dlq, job, state="aborted", reason="manual")
    assert view.changed_by == "ann"
    assert 0 in await replay_numbers(dlq, dead)
    unknown = await send(dlq, "pause", id=str(UUID(int=1)))
    assert unknown["error"]["code"] == "not_found"


@pytest.mark.requirement("ASK-2", "ASK-3")
async def test_job_moves_its_runs_to_another_pool(dlq: DlqEnvironment) -> None:
    [dead] = await add_dead_runs(dlq, 1)

    job = await start_job(dlq, ids=[str(dead_letter_id(dead))], pool="slow")
    await wait_for_job(dlq, job, taken=1)

    [ticket] = await dlq.next_tickets(1)
    assert (ticket["pool"], (await dlq.run_row(dead))["pool"]) == ("slow", "slow")


async def test_job_skips_a_dead_letter_that_was_discarded_after_its_start(
    dlq: DlqEnvironment,
) -> None:
    dead = await add_dead_runs(dlq, 2)
    job = await start_job(dlq, select=ALL, rate=0.001)
    await wait_for_job(dlq, job, taken=1)
    await dlq.send_command("dlq.discard", dead_letter_id(dead[1]))
    await dlq.next_response()

    await dlq.database.execute("UPDATE replay_jobs SET rate = NULL, next_check_at = now()")
    await send(dlq, "pause", id=str(job))  # a command makes the worker poll at once
    await send(dlq, "resume", id=str(job))

    await wait_for_job(dlq, job, taken=2, replayed=1, rejected=1)
    assert await replay_numbers(dlq, dead) == [1, 0]


@pytest.mark.requirement("S113", "ASK-2")
async def test_job_shows_the_breaker_that_defers_its_canary_and_then_the_canary(
    dlq: DlqEnvironment,
) -> None:
    dead = await add_dead_runs(dlq, 3)
    downstream = downstream_of_json(dead[0].target)
    next_probe_at = truncate_ms(datetime.now(UTC) + timedelta(hours=1))
    await dlq.database.execute(OPEN_BREAKER, downstream, next_probe_at)

    job = await start_job(dlq, select=ALL, canary=2)
    view = await wait_for_job(dlq, job, taken=2)
    await dlq.database.execute("DELETE FROM breakers")
    later = await dlq.acme.replay_job(job)
    await send(dlq, "pause", "r-2", id=str(job))
    paused = await wait_for_job(dlq, job, state="paused")

    assert view.waiting_for is not None
    assert (view.waiting_for.code, view.waiting_for.downstream) == ("breaker", downstream)
    assert view.waiting_for.next_probe_at == next_probe_at
    assert view.waiting_for.text.startswith(
        f"The canary waits for 2 runs that the open circuit breaker of {downstream} defers. "
    )
    assert later.waiting_for is not None
    assert (later.waiting_for.code, later.waiting_for.text) == (
        "canary",
        "The canary waits for the end of 2 runs, of 2 replayed.",
    )
    assert paused.waiting_for is not None
    assert paused.waiting_for.code == "paused"


@pytest.mark.requirement("ASK-2")
async def test_job_with_a_rate_shows_the_time_of_its_next_replay_until_its_end(
    dlq: DlqEnvironment,
) -> None:
    dead = await add_dead_runs(dlq, 2)

    job = await start_job(dlq, select=ALL, rate=0.001)
    view = await wait_for_job(dlq, job, taken=1)
    await send(dlq, "abort", "r-2", id=str(job))
    await end_runs(dlq, dead, "succeeded")
    aborted = await wait_for_job(dlq, job, state="aborted")

    assert view.waiting_for is not None
    assert (view.waiting_for.code, view.waiting_for.until is not None) == ("rate", True)
    assert view.waiting_for.text.startswith("The rate of one replay in 1000 s permits")
    assert aborted.waiting_for is None


async def test_job_publishes_the_tickets_of_its_batch_before_the_commit(
    environment: DlqEnvironment,
) -> None:
    async with environment.running_inspector():
        await add_dead_runs(environment, 2)
    publisher = FakePublisher()
    publisher.failures = 1
    item = AcceptedCommand(index=0, request_id="r-1", body={"select": ALL})
    commands = AcceptedCommands(
        tenant="acme", verb="dlq.replay_job.start", accepted_at=NINE, single=True, items=[item]
    )

    async with environment.open_pool() as pool:
        clock = Clock(lambda: database_time(pool))
        await clock.refresh()
        worker = ReplayWorker(pool=pool, publisher=publisher, clock=clock)
        await worker.start(commands, item, ReplayJobStart.model_validate(item.body))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(TIMEOUT):
            while len(publisher.tickets) < 2:  # noqa: ASYNC110  # the publisher sets no event
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert publisher.failures == 0
    assert [ticket.seq for ticket in publisher.tickets] == [8, 8]
