"""Claimed runs start on their instant, as many at once as there are slots, only while leased."""

import asyncio
import sys
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import uvloop
from tests.fakes.lane import OTHER, Stage

from harebell.bootstrap.process import _eager_task
from harebell.domain.retry import EXPIRED, Failure
from harebell.executor.model.start_queue import BATCHED_START_THRESHOLD, StartQueue
from harebell.executor.model.throughput import FEWEST, MAX_LATE, MAX_UNSTARTED
from harebell.executor.running.starter import AT_A_TIME, LATE
from harebell.executor.targets.attempt import Success
from harebell.runtime.clock import monotonic

PATIENCE = 5.0  # seconds


@pytest.fixture
async def stage() -> Stage:
    """Two slots."""
    return await Stage.make(2)


@pytest.mark.requirement("S02")
async def test_no_run_starts_before_its_instant(stage: Stage) -> None:
    stage.work.go_on.set()
    waits = [stage.claimed(number, 0.02 * number) for number in range(1, 9)]

    async with stage.running():
        stage.runner.add(waits)
        await stage.until(8, stage.settled)

    due = {len(run.ticket.run_spec.target.task.args["filling"]): run for run, _ in stage.settled}  # type: ignore[union-attr]
    assert all(at >= due[number].ticket.due_at for number, at in stage.work.started)
    assert sorted(stage.work.numbers) == list(range(1, 9))


@pytest.mark.requirement("S67")
async def test_never_more_run_at_once_than_there_are_slots(stage: Stage) -> None:
    async with stage.running():
        stage.runner.add([stage.claimed(number) for number in range(1, 7)])
        await stage.until(2, stage.work.started)
        stage.work.go_on.set()
        await stage.until(6, stage.settled)

    assert stage.work.most_at_once == 2
    assert all(isinstance(outcome, Success) for _, outcome in stage.settled)


@pytest.mark.requirement("S67")
async def test_a_run_that_is_claimed_anew_while_its_old_attempt_runs_takes_a_slot_of_its_own(
    stage: Stage,
) -> None:
    lost = stage.claimed(1)
    anew = replace(lost, token=lost.token + 2, attempt=2)

    async with stage.running():
        stage.runner.add([lost, anew, stage.claimed(2)])
        await stage.until(2, stage.work.started)
        held = dict(stage.runner.running)
        stage.work.go_on.set()
        await stage.until(3, stage.settled)

    assert set(held) == {lost, anew}
    assert (stage.work.most_at_once, stage.work.numbers) == (2, [1, 1, 2])
    assert stage.runner.running == {}


async def test_few_of_a_lane_start_in_one_turn_of_the_loop() -> None:
    stage = await Stage.make(100)
    turns = []

    async with stage.running():
        stage.runner.add([stage.claimed(number) for number in range(1, 41)])
        async with asyncio.timeout(PATIENCE):
            while (before := len(stage.work.started)) < 40:
                await asyncio.sleep(0)
                turns.append(len(stage.work.started) - before)
        stage.work.go_on.set()
        await stage.until(40, stage.settled)

    assert max(turns) == AT_A_TIME


async def test_of_many_that_wait_none_starts_early_and_each_within_a_few_milliseconds() -> None:
    stage = await Stage.make(BATCHED_START_THRESHOLD * 2)
    stage.work.go_on.set()
    waits = [
        stage.claimed(number, 0.05 + 0.0003 * number)
        for number in range(1, BATCHED_START_THRESHOLD * 2 + 1)
    ]

    async with stage.running():
        stage.runner.add(waits)
        await stage.until(BATCHED_START_THRESHOLD * 2, stage.settled)

    due = {len(run.ticket.run_spec.target.task.args["filling"]): run for run, _ in stage.settled}  # type: ignore[union-attr]
    late = [at - due[number].ticket.due_at for number, at in stage.work.started]
    assert all(each >= timedelta(0) for each in late)
    assert sorted(late)[BATCHED_START_THRESHOLD] < timedelta(
        seconds=0.1
    )  # the median, on a machine that is busy


@pytest.mark.skipif(sys.version_info < (3, 12), reason="has no eager tasks")
async def test_what_stood_aside_starts_though_attempts_end_at_once() -> None:
    asyncio.get_running_loop().set_task_factory(_eager_task)
    stage = await Stage.make(4, share=0.75)

    async with stage.running():
        stage.runner.add([stage.claimed(number) for number in range(1, 41)])
        await stage.until(3, stage.work.started)
        stage.work.go_on.set()  # from now on they end in the turn in which they start
        await stage.until(40, stage.settled)

    assert stage.runner.heap.deferred_counts() == {}


class Looking(StartQueue):
    """Counts how often somebody asks it what is next."""

    looks = 0

    def next_due(self) -> datetime | None:
        self.looks += 1
        return super().next_due()


def test_of_many_that_wait_few_turns_of_the_loop_ask_for_the_next() -> None:
    """On the services' own loop, whose timers have whole milliseconds."""
    runs = BATCHED_START_THRESHOLD * 2  # to start while more than a few others wait

    async def looks() -> int:
        stage = await Stage.make(runs * 2)
        stage.runner.heap = heap = Looking()
        stage.work.go_on.set()
        apart = 0.0004  # seconds: sooner than a timer
        async with stage.running():
            stage.runner.add([stage.claimed(n, 0.1 + apart * n) for n in range(runs * 2)])
            await stage.until(runs, stage.work.started)
            return heap.looks

    assert runs < uvloop.run(looks()) < 5 * runs


async def test_a_target_that_hangs_has_its_share_of_the_slots_and_the_rest_go_on() -> None:
    stage = await Stage.make(4, share=0.75)
    hung = [stage.claimed(number) for number in range(1, 41)]
    quick = [stage.claimed(number, 0.01, task=OTHER) for number in range(41, 44)]

    async with stage.running():
        stage.runner.add(hung)
        await stage.until(3, stage.work.started)
        async with asyncio.timeout(PATIENCE):
            while not (crowded := stage.runner.saturated_targets()):  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0)
        stage.runner.add(quick)
        await stage.until(4, stage.work.started)
        stage.work.go_on.set()
        await stage.until(43, stage.settled)

    assert stage.work.numbers[:4] == [1, 2, 3, 41]
    assert crowded == {"task:harebell.echo"}
    assert stage.runner.capacity() > 0
    assert sorted(stage.work.numbers) == list(range(1, 44))
    assert stage.runner.saturated_targets() == frozenset()


@pytest.mark.requirement("S21")
async def test_of_what_is_due_the_most_urgent_takes_the_slot() -> None:
    stage = await Stage.make(1)
    stage.work.go_on.set()
    due_at = stage.claimed(1).ticket.due_at
    runs = [stage.claimed(number, priority=number) for number in (4, 6, 5, 7)]
    for run in runs:
        run.ticket = run.ticket.model_copy(update={"due_at": due_at})

    async with stage.running():
        stage.runner.add(runs)
        await stage.until(4, stage.settled)

    assert stage.work.numbers == [7, 6, 5, 4]


async def test_a_later_run_does_not_hold_up_an_earlier_one_that_comes_after_it(
    stage: Stage,
) -> None:
    stage.work.go_on.set()

    async with stage.running():
        stage.runner.add([stage.claimed(1, 60)])
        stage.runner.add([stage.claimed(2, 0.01)])
        await stage.until(1, stage.settled)
        stage.runner.heap.pop()

    assert stage.work.numbers == [2]


@pytest.mark.requirement("S89", "S92", "ASK-14")
async def test_after_the_end_of_its_lease_a_run_is_not_started(stage: Stage) -> None:
    stage.refusals = 1000

    async with stage.running():
        stage.runner.add([stage.claimed(1, leased=1, waited=1.01)])
        await stage.until(1, stage.abandoned)

    assert (stage.work.started, stage.settled) == ([], [])


@pytest.mark.requirement("S92")
async def test_a_run_that_has_waited_is_renewed_before_it_starts(stage: Stage) -> None:
    stage.work.go_on.set()

    async with stage.running():
        stage.runner.add([stage.claimed(1, waited=3), stage.claimed(2)])
        await stage.until(2, stage.settled)

    assert stage.renewals == 1


@pytest.mark.requirement("S92")
async def test_a_run_whose_renewal_is_refused_waits_for_its_lease_and_never_starts(
    stage: Stage,
) -> None:
    stage.refusals = 1000

    async with stage.running():
        stage.runner.add([stage.claimed(1, leased=3.2, waited=3)])
        await stage.until(1, stage.abandoned)

    assert stage.renewals > 1
    assert stage.work.started == []


async def test_a_row_that_was_only_locked_is_renewed_a_little_later(stage: Stage) -> None:
    stage.work.go_on.set()
    stage.refusals = 2

    async with stage.running():
        stage.runner.add([stage.claimed(1, waited=3)])
        await stage.until(1, stage.settled)

    assert (stage.renewals, stage.work.numbers) == (3, [1])


async def test_a_run_that_has_expired_is_not_started_and_never_tried_again(stage: Stage) -> None:
    async with stage.running():
        stage.runner.add([stage.claimed(1, expires_in=0)])
        await stage.until(1, stage.settled)

    ((_, outcome),) = stage.settled
    assert stage.work.started == []
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == (EXPIRED, False)


@pytest.mark.requirement("S56")
async def test_nothing_starts_until_the_clock_is_steady(stage: Stage) -> None:
    stage.clock.stepped_at = monotonic()

    async with stage.running():
        stage.runner.add([stage.claimed(1)])
        stage.runner.add([stage.claimed(2)])
        await asyncio.wait([asyncio.create_task(stage.work.changed.wait())], timeout=0.1)

    assert stage.work.started == []


@pytest.mark.requirement("S73")
async def test_told_to_close_it_starts_nothing_more_and_ends_what_runs(stage: Stage) -> None:
    async with stage.running():
        stage.runner.add([stage.claimed(1), stage.claimed(2), stage.claimed(3)])
        await stage.until(2, stage.work.started)
        stage.runner.closing = True
        stage.work.go_on.set()
        await stage.until(2, stage.settled)

    assert sorted(stage.work.numbers) == [1, 2]
    assert len(stage.runner.heap.waiting()) == 1


async def test_what_does_not_end_within_the_grace_is_given_up(stage: Stage) -> None:
    async with stage.running():
        stage.runner.add([stage.claimed(1)])
        await stage.until(1, stage.work.started)
        await stage.runner.drain(0.01)

    assert (stage.settled, stage.runner.running) == ([], {})


async def test_a_backlog_starts_before_more_is_claimed(stage: Stage) -> None:
    for _ in range(FEWEST):
        stage.runner._pace.record(0.0)  # noqa: SLF001  # as quick attempts would
    quick = stage.runner.capacity()

    stage.runner.add([stage.claimed(1, -2 * LATE)])

    assert (quick, stage.runner.capacity()) == (MAX_UNSTARTED, MAX_LATE - 1)


async def test_room_is_what_slots_and_what_waits_for_them_leave(stage: Stage) -> None:
    told: list[None] = []
    stage.runner.capacity_changed = lambda: told.append(None)
    empty = stage.runner.capacity()

    stage.runner.add([stage.claimed(number, 60) for number in (1, 2, 3)])

    assert (empty, stage.runner.capacity(), told) == (2, 0, [])
