"""The ages of held snapshots, from repeated readings of their holders."""

from datetime import UTC, datetime, timedelta
from typing import Any

from harebell.storage.snapshot_holders import SnapshotHolder
from harebell.ticker.held_snapshots import SnapshotAges

START = datetime(2026, 11, 20, 14, tzinfo=UTC)


def holder(at: float, **changes: Any) -> SnapshotHolder:
    """Return a working session in the reading `at` seconds after the start."""
    values: dict[str, Any] = {
        "kind": "session",
        "pid": 7,
        "application_name": "report",
        "username": "ann",
        "state": "active",
        "since": None,
        "horizon": "100",
        "transactions": 5,
        "read_at": START + timedelta(seconds=at),
    }
    return SnapshotHolder(**(values | changes))


def ages(*readings: list[SnapshotHolder]) -> list[float]:
    """Return the ages after the last reading."""
    observed = SnapshotAges()
    for each in readings[:-1]:
        observed.observe(each)
    return [held.age for held in observed.observe(readings[-1])]


def test_age_is_the_time_since_the_first_reading_of_the_snapshot() -> None:
    assert ages([holder(0)]) == [0]
    assert ages([holder(0)], [holder(15)], [holder(30)]) == [30]


def test_age_begins_again_with_another_snapshot_of_the_session() -> None:
    assert ages([holder(0)], [holder(15, horizon="101")]) == [0]


def test_age_begins_again_after_a_reading_without_the_snapshot() -> None:
    assert ages([holder(0)], [], [holder(30)]) == [0]


def test_age_of_an_idle_session_is_the_age_of_its_transaction() -> None:
    since = START - timedelta(minutes=10)

    assert ages([holder(0, state="idle in transaction", since=since)]) == [600]
    assert ages([holder(0, state="idle in transaction (aborted)", since=since)]) == [600]
    assert ages([holder(0, kind="prepared", state=None, since=since)]) == [600]


def test_age_of_a_working_session_ignores_the_start_of_its_transaction() -> None:
    since = START - timedelta(minutes=10)

    assert ages([holder(0, since=since)], [holder(15, since=since)]) == [15]


def test_snapshot_without_a_later_transaction_is_omitted_and_keeps_its_age() -> None:
    assert ages([holder(0, transactions=0)]) == []
    assert ages([holder(0, transactions=0)], [holder(15, transactions=1)]) == [15]


def test_oldest_snapshot_is_first() -> None:
    other = holder(15, pid=8)

    assert ages([holder(0)], [other, holder(15)]) == [15, 0]
