"""The phases of intervals: spread by the schedule id, the same for ever, and even."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.contract.when import Every, Recurring
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.preview import describe_run
from harebell.domain.recurrence import RESOLUTION, initial_cursor, next_times, recurrence_of
from harebell.domain.versions import VersionWindow

IDS = [uuid5(NAMESPACE_URL, f"https://acme.example/{n}") for n in range(10_000)]
NOW = datetime(2026, 11, 20, 14, 0, 7, tzinfo=UTC)
TASK = {"task": {"name": "harebell.echo"}}
SPREAD = {"every": "5m", "phase": "spread"}
SLOTS = 30  # of ten seconds within five minutes


def definition(when: dict[str, Any]) -> Definition:
    return parse(Definition, {"when": when, "target": TASK})


def times_of(when: dict[str, Any], schedule_id: UUID, since: datetime = NOW) -> list[datetime]:
    recurrence = recurrence_of(definition(when), schedule_id, since)
    return next_times(recurrence, initial_cursor(recurrence, since), 5)


@pytest.mark.requirement("S13", "S09")
def test_spread_phases_of_ten_thousand_schedules_are_even_within_30_percent() -> None:
    first = [times_of(SPREAD, schedule_id)[0] for schedule_id in IDS]

    slots = Counter((time - NOW) // timedelta(seconds=10) for time in first)
    even = len(IDS) / SLOTS
    assert len(slots) == SLOTS
    assert min(slots.values()) >= 0.7 * even
    assert max(slots.values()) <= 1.3 * even


@pytest.mark.requirement("S13")
@given(
    number=st.integers(0, 200),
    every=st.integers(1_000, 10**9),
    wait=st.integers(0, 10**9),
)
def test_phase_is_the_same_after_any_change(number: int, every: int, wait: int) -> None:
    when = {"every": f"{every}ms", "phase": "spread"}
    later = NOW + wait * RESOLUTION

    before, after = times_of(when, IDS[number]), times_of(when, IDS[number], later)

    interval = every * RESOLUTION
    assert NOW <= before[0] < NOW + interval
    assert later <= after[0] < later + interval
    assert (after[0] - before[0]) % interval == timedelta(0)
    assert {b - a for a, b in pairwise(before)} == {interval}


def test_spread_phase_begins_at_the_start() -> None:
    start = NOW + timedelta(days=2)

    first = times_of({**SPREAD, "start": start.isoformat()}, IDS[0])[0]

    assert start <= first < start + timedelta(minutes=5)


def test_interval_without_a_phase_counts_from_its_acceptance() -> None:
    assert times_of({"every": "5m"}, IDS[0])[0] == NOW + timedelta(minutes=5)


def test_spread_phase_after_completion_is_rejected() -> None:
    with pytest.raises(InvalidInput) as error:
        definition({**SPREAD, "from": "completion"})

    assert (error.value.code, error.value.field) == ("invalid_when", "when")


@pytest.mark.requirement("S09")
@pytest.mark.parametrize(
    ("setting", "phase"),
    [
        (None, "spread"),
        ('{"every": "1h"}', "spread"),
        ('{"acme": {"every": "1h"}}', "spread"),
        ('{"every": "1h", "phase": "start"}', "start"),
        ('{"every": "1h", "start": "2026-01-01"}', "start"),
        ('{"every": "1h", "from": "completion"}', "start"),
    ],
)
def test_default_interval_of_a_tenant_spreads_unless_the_setting_states_its_phase(
    setting: str | None, phase: str
) -> None:
    default = DefaultWhen() if setting is None else DefaultWhen.parse(setting)

    when = default.for_tenant("acme")

    assert isinstance(when, Every)
    assert when.phase == phase


@pytest.mark.requirement("S09")
def test_default_rule_that_is_no_interval_has_no_phase() -> None:
    when = DefaultWhen.parse('{"cron": "0 * * * *"}').for_tenant("acme")

    assert isinstance(when, Recurring)
    assert not isinstance(when, Every)


@pytest.mark.requirement("S13")
def test_preview_states_that_the_phase_is_spread() -> None:
    window = VersionWindow(schedule_id=IDS[0], policy=definition(SPREAD), since=NOW)
    time = window.next_times(NOW, 1)[0]

    (note,) = describe_run(window, time).notes

    assert note.about == "phase"
    assert note.text.startswith("The phase is spread: the schedule id sets the offset ")
    assert note.text.endswith(" within each interval of 5m.")
