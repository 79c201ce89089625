"""The rules of the retention, without a server."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.domain.run_states import OPEN, RunState
from harebell.domain.tenant_policy import TenantPolicies
from harebell.ticker.model.retention import (
    EXAMINATION_INTERVAL,
    Ages,
    Cutoffs,
    DayStep,
    Examination,
    KeepRule,
    StoredRun,
    keep_rule,
    plan_day,
    start_of,
)

NOW: Final = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)
DAY: Final = timedelta(days=1)
CUTOFFS: Final = Ages(default=30 * DAY, tenants={"brief": 2 * DAY, "long": 60 * DAY}).cutoffs(NOW)
ENDED_AT: Final = NOW - 70 * DAY


def stored_run(**columns: Any) -> StoredRun:
    fields: dict[str, Any] = {
        "tenant": "acme",
        "state": RunState.SUCCEEDED,
        "scheduled_for": ENDED_AT,
        "finished_at": ENDED_AT,
    }
    return StoredRun(**fields | columns)


@pytest.mark.requirement("S118")
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({}, None),
        ({"state": RunState.DEAD}, None),
        ({"state": RunState.DEAD, "is_needed": True}, KeepRule.DEAD_LETTER),
        ({"state": RunState.UNRESOLVED}, KeepRule.UNRESOLVED),
        ({"finished_at": NOW - DAY / 2}, KeepRule.RECENT_END),
        ({"scheduled_for": datetime(2026, 10, 21, tzinfo=UTC)}, KeepRule.AGE),
        ({"scheduled_for": datetime(2026, 10, 20, 23, 59, tzinfo=UTC)}, None),
        ({"range_until": NOW - 5 * DAY}, KeepRule.RANGE),
        ({"range_until": NOW - 40 * DAY}, None),
        ({"tenant": "long", "scheduled_for": NOW - 50 * DAY}, KeepRule.AGE),
        ({"tenant": "brief", "scheduled_for": NOW - 4 * DAY}, None),
        *(({"state": state, "finished_at": None}, KeepRule.OPEN) for state in sorted(OPEN)),
    ],
)
def test_run_stays_for_the_first_reason_that_applies(
    columns: dict[str, Any], reason: KeepRule | None
) -> None:
    assert keep_rule(stored_run(**columns), CUTOFFS, now=NOW) is reason


@pytest.mark.requirement("S118")
@given(
    age=st.timedeltas(DAY, 100 * DAY),
    run_age=st.timedeltas(timedelta(), 200 * DAY),
    state=st.sampled_from(RunState),
    needed=st.booleans(),
)
def test_removed_run_has_ended_and_is_older_than_its_retention(
    age: timedelta, run_age: timedelta, state: RunState, *, needed: bool
) -> None:
    cutoffs = Ages(default=age, tenants={}).cutoffs(NOW)
    at = NOW - run_age
    run = stored_run(state=state, scheduled_for=at, finished_at=at, is_needed=needed)

    if keep_rule(run, cutoffs, now=NOW) is None:
        assert run_age > age
        assert state not in OPEN
        assert state is not RunState.UNRESOLVED
        assert not needed
    elif state not in OPEN and state is not RunState.UNRESOLVED and not needed:
        assert run_age < age + DAY or run_age < DAY


@pytest.mark.parametrize(
    ("days_ago", "step"),
    [
        (0, DayStep.KEEP),
        (2, DayStep.KEEP),
        (3, DayStep.REMOVE_ROWS),
        (30, DayStep.REMOVE_ROWS),
        (31, DayStep.REMOVE_ROWS),
        (60, DayStep.REMOVE_ROWS),
        (61, DayStep.REMOVE_PARTITION),
    ],
)
def test_day_is_removed_as_a_whole_after_the_longest_retention(
    days_ago: int, step: DayStep
) -> None:
    assert plan_day(NOW.date() - days_ago * DAY, CUTOFFS, None, now=NOW) is step


def test_examined_day_is_examined_again_if_other_runs_may_be_free() -> None:
    day = NOW.date() - 40 * DAY
    scope = CUTOFFS.scope(day)
    before = NOW - EXAMINATION_INTERVAL

    def step(examination: Examination) -> DayStep:
        return plan_day(day, CUTOFFS, examination, now=NOW)

    assert step(Examination(scope, before - DAY, is_final=True)) is DayStep.KEEP
    assert step(Examination(scope, NOW, is_final=False)) is DayStep.KEEP
    assert step(Examination(scope, before, is_final=False)) is DayStep.REMOVE_ROWS
    assert step(Examination("another", NOW, is_final=True)) is DayStep.REMOVE_ROWS


def test_scope_changes_with_each_tenant_that_expires() -> None:
    scopes = {CUTOFFS.scope(NOW.date() - days * DAY) for days in (1, 10, 40, 70)}

    assert len(scopes) == 4


def test_policy_of_a_tenant_replaces_the_setting() -> None:
    policies = TenantPolicies.parse(
        {
            "defaults": {"retention": {"versions": "7d"}},
            "tenants": {"acme": {"retention": {"runs": "3d"}}, "b": {}},
        }
    )

    runs = Ages.of("runs", 30 * DAY, policies)
    versions = Ages.of("versions", 90 * DAY, policies)

    assert runs == Ages(default=30 * DAY, tenants={"acme": 3 * DAY, "b": 30 * DAY})
    assert versions == Ages(default=7 * DAY, tenants={"acme": 7 * DAY, "b": 7 * DAY})


def test_cutoffs_are_starts_of_days() -> None:
    ages = Ages(default=DAY, tenants={})

    assert ages.cutoffs(NOW) == Cutoffs(default=start_of(date(2026, 11, 19)), tenants={})
