"""The model of the ledger: what the SQL is held to must make sense by itself."""

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
def test_every_state_is_open_or_ended() -> None:
    assert set(RunState) == OPEN | ENDED
    assert not OPEN & ENDED


def test_a_staged_run_can_come_to_every_end() -> None:
    assert reached(RunState.STAGED) >= ENDED


@pytest.mark.parametrize("state", sorted(OPEN))
def test_whatever_is_open_can_end(state: RunState) -> None:
    assert {after for before, after in TRANSITIONS if before is state} & ENDED


def test_only_a_claim_makes_a_run_run() -> None:
    actors = {
        who for (_, after), by in TRANSITIONS.items() if after is RunState.RUNNING for who in by
    }

    assert actors == {Actor.CLAIM}


def test_a_running_run_is_its_holders_or_the_sweeps() -> None:
    actors = {
        who for (before, _), by in TRANSITIONS.items() if before is RunState.RUNNING for who in by
    }

    assert actors == {Actor.COMPLETE, Actor.RETURN, Actor.RECOVER, Actor.RATE_LIMIT}


def test_what_has_ended_is_not_opened_again_by_an_executor() -> None:
    back = [by for (before, _), by in TRANSITIONS.items() if before in ENDED]

    assert not frozenset().union(*back) & {Actor.CLAIM, Actor.COMPLETE, Actor.RETURN}
    assert {after for before, after in TRANSITIONS if before in ENDED} & OPEN == {RunState.STAGED}


def test_success_is_final() -> None:
    assert reached(RunState.SUCCEEDED) == set()


@pytest.mark.parametrize(
    ("actor", "before", "after", "allowed"),
    [
        (Actor.CLAIM, RunState.STAGED, RunState.RUNNING, True),
        (Actor.CLAIM, RunState.RUNNING, RunState.RUNNING, False),  # a lapsed row is the sweep's
        (Actor.COMPLETE, RunState.STAGED, RunState.SUCCEEDED, False),
        (Actor.RETURN, RunState.RUNNING, RunState.RETRYING, True),
        (Actor.TICKER, RunState.RUNNING, RunState.CANCELLED, False),
        (Actor.REPLAY, RunState.DEAD, RunState.STAGED, True),
        (Actor.TICKER, RunState.DEAD, RunState.STAGED, False),
    ],
)
def test_who_may_do_what(actor: Actor, before: RunState, after: RunState, *, allowed: bool) -> None:
    assert is_allowed(actor, before, after) is allowed


def test_what_gave_way_or_was_taken_out_is_not_owed_again() -> None:
    assert not RESTAGEABLE & {Reason.REPLACED, Reason.MANUAL, Reason.OVERLAP, Reason.MISSED}


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (Retry(NINE), (RunState.RETRYING, None, NINE)),
        (Dead("http_404"), (RunState.DEAD, "http_404", None)),
        (Expired(), (RunState.EXPIRED, Reason.EXPIRED, None)),
    ],
)
def test_a_decision_becomes_a_state_its_reason_and_the_next_time(
    decided: Decision, expected: tuple[RunState, str | None, datetime | None]
) -> None:
    assert state_after(decided) == expected


@pytest.mark.parametrize(("started", "expected"), [(NINE, 1500.0), (None, None)])
def test_an_attempt_lasted_from_its_start(started: datetime | None, expected: float | None) -> None:
    ended = NINE + timedelta(seconds=1.5)

    ending = AttemptCompletion(KEY, 2, RunState.DEAD, "failed", started, ended)

    assert ending.duration_ms == expected
