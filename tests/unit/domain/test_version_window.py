"""The next times of a version, with the number of runs that `times` still allows."""

from datetime import timedelta

from tests.fakes.schedules import ID, definition
from tests.fakes.tickets import NINE, after

from harebell.domain.versions import VersionWindow


def window(times: int, dispatched: int = 0) -> VersionWindow:
    policy = definition({"every": "10s", "times": times})
    return VersionWindow(
        schedule_id=ID, policy=policy, since=NINE, dispatched=dispatched, planned_until=NINE
    )


def test_next_times_end_with_the_last_run_that_times_allows() -> None:
    assert window(3).next_times(NINE, 9) == [after(10), after(20), after(30)]
    assert window(3, dispatched=2).next_times(NINE, 9) == [after(10)]


def test_next_times_contain_a_skipped_time_that_does_not_count_towards_times() -> None:
    times = window(2).next_times(NINE, 9, skipped_times=[after(10)])

    assert times == [after(10), after(20), after(30)]


def test_version_is_in_force_until_the_effective_time_of_the_next_version() -> None:
    policy = definition({"every": "10s"})
    limited = VersionWindow(schedule_id=ID, policy=policy, since=NINE, until=after(30))

    assert limited.next_times(NINE, 9) == [after(10), after(20)]


def test_decided_times_begin_and_end_at_the_microseconds_of_their_bounds() -> None:
    """The audit loads the rows of the same bounds, so a time before them has no row."""
    policy = definition({"every": "10s"})
    decided = VersionWindow(schedule_id=ID, policy=policy, since=NINE, planned_until=after(60))
    later = timedelta(microseconds=1)

    assert list(decided.decided_times(after(10), after(20))) == [after(10)]
    assert list(decided.decided_times(after(10) + later, after(20) + later)) == [after(20)]
    assert list(decided.decided_times(after(10) - later, after(20) - later)) == [after(10)]
