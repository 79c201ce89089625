"""The judge finds every kind of broken promise, and nothing in a history that kept them all."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.acceptance.stack import run_id
from tests.chaos.history import Outage, Verb
from tests.chaos.result import Kind
from tests.chaos.sample_histories import (
    CRASH,
    CUT,
    ID,
    OTHER,
    Past,
    at,
    attempt,
    call,
    lapsed_once,
    put,
    row,
    said,
)


def test_a_history_that_kept_every_promise_is_kept() -> None:
    verdict = Past().judged()

    assert verdict.is_kept
    assert (verdict.owed, verdict.ran, verdict.excused, verdict.repeated) == (3, 3, 0, 0)
    assert verdict.lateness == pytest.approx(0.01)


def test_lost_is_what_has_no_row() -> None:
    assert Past().without(1).kinds() == {Kind.LOST}


def test_lost_is_a_success_that_the_target_never_saw() -> None:
    past = Past()
    del past.calls[1]

    assert past.kinds() == {Kind.LOST}


@pytest.mark.parametrize("state", ["dead", "expired", "staged", "held"])
def test_lost_is_what_ended_badly_or_not_at_all(state: str) -> None:
    past = Past(runs=[row(1), row(2, state), row(3)])
    del past.calls[1]

    assert Kind.LOST in past.kinds()


def test_a_skip_that_no_policy_asked_for_is_lost() -> None:
    past = Past(runs=[row(1), row(2, "skipped", "overlap"), row(3)])
    del past.calls[1], past.attempts[1]

    assert past.kinds() == {Kind.LOST}


def test_a_policy_excuses_a_skip() -> None:
    past = Past(runs=[row(1), row(2, "skipped", "overlap"), row(3)])
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}
    past.operations = [put(when, overlap="skip")]
    del past.calls[1], past.attempts[1]

    verdict = past.judged()

    assert verdict.is_kept
    assert (verdict.owed, verdict.ran, verdict.excused) == (3, 2, 1)


def test_early_is_a_millisecond_before_its_instant() -> None:
    past = Past()
    past.calls[1] = call(2, began=1.999)

    assert past.kinds() == {Kind.EARLY}


def test_late_is_seconds_after_the_instant_while_nothing_is_disturbed() -> None:
    past = Past()
    past.calls[1] = call(2, began=8)

    assert past.kinds() == {Kind.LATE}


def test_late_is_more_than_half_a_minute_after_a_fault_has_healed() -> None:
    past = Past(outages=[CUT])
    past.calls[1] = call(2, began=34)
    assert past.kinds() == set()
    assert past.judged().recovery == pytest.approx(29)

    past.calls[1] = call(2, began=36)
    assert past.kinds() == {Kind.LATE}


@pytest.mark.parametrize(("pause", "kinds"), [(None, set()), (7, {Kind.LATE}), (9, set())])
def test_what_a_fault_may_hold_up_is_late_behind_that_though_it_lasts(
    pause: float | None, kinds: set[Kind]
) -> None:
    longest = None if pause is None else timedelta(seconds=pause)
    past = Past(outages=[Outage("11", at(0.5), at(60), lapses=False, pause=longest)])
    past.calls[1] = call(2, began=10)

    assert past.kinds() == kinds


def test_what_waits_for_one_fault_to_be_over_may_wait_for_the_next_that_comes_before() -> None:
    first = Outage("17", at(0.5), at(5), lapses=False)
    past = Past(outages=[first, Outage("18", at(20), at(50), lapses=False)])
    past.calls[1] = call(2, began=60)
    assert past.kinds() == set()

    past.outages = [first]
    assert past.kinds() == {Kind.LATE}


def test_after_cancel_is_what_begins_after_the_answer_and_was_not_named() -> None:
    past = Past().without(2)
    past.operations.append(said(Verb.CANCEL, 1.9, 2.005, in_flight=[]))

    assert past.kinds() == {Kind.AFTER_CANCEL}


@pytest.mark.parametrize(
    ("verb", "kinds"), [(Verb.PAUSE, set()), (Verb.CANCEL, {Kind.AFTER_CANCEL})]
)
def test_a_run_that_an_executor_took_with_it_is_tried_again_through_a_pause(
    verb: Verb, kinds: set[Kind]
) -> None:
    past = lapsed_once(CRASH)
    past.operations.append(said(verb, 2.3, 2.35, in_flight=[]))
    past.operations.append(said(Verb.RESUME, 2.9, 2.95))

    assert past.kinds() == kinds


def test_phantom_is_an_instant_after_a_cancel() -> None:
    past = Past()
    past.operations.append(said(Verb.CANCEL, 2.4, 2.5, in_flight=[]))

    assert past.kinds() == {Kind.AFTER_CANCEL, Kind.PHANTOM}


def test_what_a_cancel_named_as_in_flight_may_begin_within_two_seconds() -> None:
    past = Past().without(2)
    named = [run_id(ID, at(2))]
    past.operations.append(said(Verb.CANCEL, 1.9, 1.95, in_flight=named))
    assert past.kinds() == set()

    past.calls[1] = call(2, began=4)
    assert past.kinds() == {Kind.AFTER_CANCEL}


def test_after_cancel_is_an_old_version_that_runs_when_the_new_is_acknowledged() -> None:
    past = Past()
    new = put(dict(past.operations[0].body["when"]), says="v2")
    past.operations.append(replace(new, asked_at=at(1.5), notified_at=at(1.6)))
    past.calls[1:] = [call(2, body='{"says":"v2"}'), call(3)]

    assert past.kinds() == {Kind.AFTER_CANCEL}


def test_phantom_is_an_instant_that_nobody_owed() -> None:
    past = Past()
    past.calls.append(call(2.5))
    past.runs.append(row(2.5))
    past.attempts.append(attempt(2.5))

    assert past.kinds() == {Kind.PHANTOM}


def test_phantom_is_a_schedule_that_nobody_put() -> None:
    past = Past()
    past.calls.append(replace(call(2), schedule_id=OTHER, run_id=run_id(OTHER, at(2))))

    assert past.kinds() == {Kind.PHANTOM}


def test_phantom_is_what_was_refused_and_runs() -> None:
    past = Past()
    past.operations[0] = replace(past.operations[0], refused="conflict")

    assert past.kinds() == {Kind.PHANTOM, Kind.UNTOLD}


def test_untold_is_a_command_that_nobody_answered_and_its_runs_are_allowed() -> None:
    past = Past()
    past.operations.append(said(Verb.TRIGGER, 1, None))

    assert past.kinds() == {Kind.UNTOLD}


@pytest.mark.parametrize("when", [{"at": str(at(1))}, {"every": "1s", "until": "success"}])
@pytest.mark.parametrize("told", [0.1, None])
def test_what_runs_once_is_owed_when_it_was_acknowledged(
    told: float | None, when: dict[str, str]
) -> None:
    past = Past([put(when, told=told)], [], [], [])
    wrong = {Kind.UNTOLD} if told is None else {Kind.LOST}

    assert past.kinds() == wrong


def test_what_lies_before_the_answer_may_or_may_not_have_been_accepted() -> None:
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}

    assert Past(operations=[put(when, told=1.5)]).without(0).kinds() == set()
