"""The transition table of runs."""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from harebell.contract.ids import RunKey
from harebell.domain.retry import Dead, Decision, Expired, Retry
from harebell.domain.run_states import (
    ENDED,
    OPEN,
    RESTAGEABLE,
    TRANSITIONS,
    Actor,
    AttemptCompletion,
    Reason,
    RunEnd,
    RunState,
    is_allowed,
    state_after,
)

NINE: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
KEY: Final = RunKey(NINE, UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"))


def reached(start: RunState) -> set[RunState]:
    found: set[RunState] = set()
    edge = {start}
    while edge:
        edge = {after for before, after in TRANSITIONS if before in edge} - found
        found |= edge
    return found


@pytest.mark.requirement("S40")
def test_each_state_is_either_open_or_ended() -> None:
    assert set(RunState) == OPEN | ENDED
    assert not OPEN & ENDED


def test_staged_run_can_reach_every_end() -> None:
    assert reached(RunState.STAGED) >= ENDED


@pytest.mark.parametrize("state", sorted(OPEN))
def test_each_open_state_can_end(state: RunState) -> None:
    assert {after for before, after in TRANSITIONS if before is state} & ENDED


def test_only_a_claim_leads_to_running() -> None:
    actors = {
        who for (_, after), by in TRANSITIONS.items() if after is RunState.RUNNING for who in by
    }

    assert actors == {Actor.CLAIM}


def test_only_the_lease_holder_or_the_recovery_changes_a_running_run() -> None:
    actors = {
        who for (before, _), by in TRANSITIONS.items() if before is RunState.RUNNING for who in by
    }

    assert actors == {Actor.COMPLETE, Actor.RETURN, Actor.RECOVER, Actor.DELAY}


def test_executor_never_reopens_an_ended_run() -> None:
    back = [by for (before, _), by in TRANSITIONS.items() if before in ENDED]

    assert not frozenset().union(*back) & {Actor.CLAIM, Actor.COMPLETE, Actor.RETURN}
    assert {after for before, after in TRANSITIONS if before in ENDED} & OPEN == {RunState.STAGED}


def test_succeeded_run_has_no_transition() -> None:
    assert reached(RunState.SUCCEEDED) == set()


@pytest.mark.parametrize(
    ("actor", "before", "after", "allowed"),
    [
        (Actor.CLAIM, RunState.STAGED, RunState.RUNNING, True),
        (
            Actor.CLAIM,
            RunState.RUNNING,
            RunState.RUNNING,
            False,
        ),  # an expired lease is for the recovery
        (Actor.COMPLETE, RunState.STAGED, RunState.SUCCEEDED, False),
        (Actor.RETURN, RunState.RUNNING, RunState.RETRYING, True),
        (Actor.TICKER, RunState.RUNNING, RunState.CANCELLED, False),
        (Actor.REPLAY, RunState.DEAD, RunState.STAGED, True),
        (Actor.TICKER, RunState.DEAD, RunState.STAGED, False),
    ],
)
def test_is_allowed_returns_the_permission_of_each_actor(
    actor: Actor, before: RunState, after: RunState, *, allowed: bool
) -> None:
    assert is_allowed(actor, before, after) is allowed


def test_replaced_or_skipped_run_is_not_restageable() -> None:
    assert not RESTAGEABLE & {Reason.REPLACED, Reason.MANUAL, Reason.OVERLAP, Reason.MISSED}


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (Retry(NINE), (RunState.RETRYING, None, NINE)),
        (Dead("http_404"), (RunState.DEAD, "http_404", None)),
        (Expired(), (RunState.EXPIRED, Reason.EXPIRED, None)),
    ],
)
def test_state_after_returns_state_reason_and_retry_time(
    decided: Decision, expected: tuple[RunState, str | None, datetime | None]
) -> None:
    assert state_after(decided) == expected


@pytest.mark.parametrize(
    ("started", "elapsed", "expected"),
    [
        (NINE, timedelta(seconds=1.5), 1500.0),
        (NINE, timedelta(microseconds=17_909), 17.9),
        (None, timedelta(seconds=1.5), None),
    ],
)
def test_duration_counts_from_the_start_of_the_attempt_in_tenths_of_a_millisecond(
    started: datetime | None, elapsed: timedelta, expected: float | None
) -> None:
    ended = NINE + elapsed

    ending = AttemptCompletion(KEY, 2, RunState.DEAD, "failed", started, ended)

    assert ending.duration_ms == expected


def test_only_a_completion_without_a_retry_ends_its_run() -> None:
    ending = AttemptCompletion(KEY, 2, RunState.DEAD, "failed", NINE, NINE, reason="http_404")
    retrying = ending._replace(state=RunState.RETRYING, next_attempt_at=NINE)

    assert ending.end == RunEnd(RunState.DEAD, "http_404")
    assert retrying.end is None
