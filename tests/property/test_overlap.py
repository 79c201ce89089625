"""The overlap policy under any order of events: one run executes at a time, and none is lost."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.policy import Overlap
from harebell.domain.overlap import OverlapSlot, Proceed, SkipRun, Wait, decide_all, next_waiting
from harebell.domain.run_states import RunState

NINE: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
TURNS: Final = [Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE]
RUNS: Final = 8


@dataclass(kw_only=True)
class World:
    """The runs of one schedule, with tickets that arrive, arrive twice or are lost."""

    policy: Overlap
    standing: dict[datetime, OverlapSlot] = field(default_factory=dict)
    started: list[datetime] = field(default_factory=list)
    gone: set[datetime] = field(default_factory=set)

    def come(self, moments: list[datetime]) -> None:
        """Return the tickets of the runs that may be claimed."""
        wanted = [self.candidate(m) for m in dict.fromkeys(moments) if self.may_come(m)]
        decided = decide_all(self.standing.values(), [(self.policy, turn) for turn in wanted])
        for turn in wanted:
            match decided[turn.scheduled_for]:
                case Proceed(replaced):
                    self.end(*replaced)
                    self.standing[turn.scheduled_for] = OverlapSlot(
                        turn.scheduled_for, RunState.RUNNING, is_running=True
                    )
                    self.started.append(turn.scheduled_for)
                case Wait(replaced):
                    self.end(*replaced)
                    self.standing[turn.scheduled_for] = replace(turn, is_waiting=True)
                case SkipRun():
                    self.end(turn.scheduled_for)

    def may_come(self, moment: datetime) -> bool:
        return moment not in self.gone and not self.candidate(moment).is_busy

    def candidate(self, moment: datetime) -> OverlapSlot:
        return self.standing.get(moment, OverlapSlot(moment, RunState.STAGED))

    def end(self, *moments: datetime) -> None:
        for moment in moments:
            self.standing.pop(moment, None)
            self.gone.add(moment)

    def running(self) -> list[datetime]:
        return [moment for moment, turn in self.standing.items() if turn.is_busy]

    def stop_running(self, state: RunState) -> None:
        """End a run, schedule its retry, or return it."""
        for moment in self.running():
            if state is RunState.SUCCEEDED:
                self.end(moment)
            else:
                self.standing[moment] = OverlapSlot(moment, state, is_running=True)

    def wake(self) -> bool:
        woken = next_waiting(self.policy, self.standing.values())
        if woken is not None:
            self.come([woken])
        return woken is not None


MOMENTS: Final = st.integers(0, RUNS - 1).map(lambda number: NINE + timedelta(minutes=number))
STEPS: Final = st.one_of(
    st.lists(MOMENTS, min_size=1, max_size=3),
    st.sampled_from([RunState.SUCCEEDED, RunState.RETRYING, RunState.STAGED]),
    st.just("wake"),
)


def play(world: World, steps: list[list[datetime] | RunState | str]) -> None:
    for step in steps:
        if isinstance(step, list):
            world.come(step)
        elif isinstance(step, RunState):
            world.stop_running(step)
        else:
            world.wake()
        assert len(world.running()) <= 1


@pytest.mark.requirement("S50")
@given(policy=st.sampled_from(TURNS), steps=st.lists(STEPS, max_size=40))
def test_at_most_one_run_executes_and_no_run_waits_forever(
    policy: Overlap, steps: list[list[datetime] | RunState | str]
) -> None:
    world = World(policy=policy)
    play(world, steps)

    for _ in range(3 * RUNS):  # started runs return, and waiting runs wake up
        world.stop_running(RunState.SUCCEEDED)
        if not world.wake():
            world.come([moment for moment, turn in world.standing.items() if turn.has_started])

    assert world.standing == {}


@pytest.mark.requirement("S50")
@given(comes=st.lists(MOMENTS, min_size=1, max_size=20))
def test_queued_runs_start_in_the_order_of_their_scheduled_times(comes: list[datetime]) -> None:
    world = World(policy=Overlap.QUEUE)
    for moment in comes:
        world.come([moment])

    while world.running():
        world.stop_running(RunState.SUCCEEDED)
        world.wake()

    first, *rest = world.started
    assert first == comes[0]
    assert rest == sorted(set(comes) - {first})


@pytest.mark.requirement("S50")
@given(comes=st.lists(MOMENTS, min_size=1, max_size=20))
def test_newest_of_replaced_runs_starts_last(
    comes: list[datetime],
) -> None:
    world = World(policy=Overlap.REPLACE)
    for moment in comes:
        world.come([moment])

    world.stop_running(RunState.SUCCEEDED)
    world.wake()

    assert world.started[-1] == max(comes)
    assert len(world.started) <= 2
