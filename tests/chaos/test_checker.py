"""Tests of the checker: each kind of finding has a history that produces it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.acceptance.stack import run_id
from tests.chaos.history import Outage, Verb
from tests.chaos.result import FindingKind
from tests.chaos.sample_histories import (
    CRASH,
    DISCONNECTION,
    ID,
    OTHER_ID,
    SampleHistory,
    at,
    attempt,
    call,
    operation,
    put,
    row,
    with_expired_lease,
)


def test_checker_finds_nothing_in_a_history_that_kept_every_promise() -> None:
    result = SampleHistory().check()

    assert result.has_kept_promises
    assert (result.expected, result.ran, result.excused, result.repeated) == (3, 3, 0, 0)
    assert result.lateness == pytest.approx(0.01)


def test_run_is_missing_without_a_row() -> None:
    assert SampleHistory().without(1).kinds() == {FindingKind.MISSING}


def test_run_is_missing_when_the_target_saw_no_call_of_its_success() -> None:
    history = SampleHistory()
    del history.calls[1]

    assert history.kinds() == {FindingKind.MISSING}


@pytest.mark.parametrize("state", ["dead", "expired", "staged", "unresolved"])
def test_run_is_missing_when_it_failed_or_did_not_end(state: str) -> None:
    history = SampleHistory(runs=[row(1), row(2, state), row(3)])
    del history.calls[1]

    assert FindingKind.MISSING in history.kinds()


def test_skipped_run_is_missing_when_no_policy_permits_the_skip() -> None:
    history = SampleHistory(runs=[row(1), row(2, "skipped", "overlap"), row(3)])
    del history.calls[1], history.attempts[1]

    assert history.kinds() == {FindingKind.MISSING}


def test_skipped_run_is_excused_by_the_overlap_policy() -> None:
    history = SampleHistory(runs=[row(1), row(2, "skipped", "overlap"), row(3)])
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}
    history.operations = [put(when, overlap="skip")]
    del history.calls[1], history.attempts[1]

    result = history.check()

    assert result.has_kept_promises
    assert (result.expected, result.ran, result.excused) == (3, 2, 1)


def test_run_is_early_one_millisecond_before_its_scheduled_time() -> None:
    history = SampleHistory()
    history.calls[1] = call(2, started=1.999)

    assert history.kinds() == {FindingKind.EARLY}


def test_run_is_late_seconds_after_its_scheduled_time_without_a_fault() -> None:
    history = SampleHistory()
    history.calls[1] = call(2, started=8)

    assert history.kinds() == {FindingKind.LATE}


def test_run_is_late_more_than_30_seconds_after_the_end_of_a_fault() -> None:
    history = SampleHistory(outages=[DISCONNECTION])
    history.calls[1] = call(2, started=34)
    assert history.kinds() == set()
    assert history.check().recovery == pytest.approx(29)

    history.calls[1] = call(2, started=36)
    assert history.kinds() == {FindingKind.LATE}


@pytest.mark.parametrize(
    ("max_delay", "kinds"), [(None, set()), (7, {FindingKind.LATE}), (9, set())]
)
def test_run_is_late_after_the_longest_delay_of_a_fault_that_continues(
    max_delay: float | None, kinds: set[FindingKind]
) -> None:
    limit = None if max_delay is None else timedelta(seconds=max_delay)
    outage = Outage(
        row="11", started_at=at(0.5), ended_at=at(60), can_expire_leases=False, max_delay=limit
    )
    history = SampleHistory(outages=[outage])
    history.calls[1] = call(2, started=10)

    assert history.kinds() == kinds


def test_run_is_not_late_when_the_next_fault_begins_before_the_recovery_from_the_first() -> None:
    first = Outage(row="17", started_at=at(0.5), ended_at=at(5), can_expire_leases=False)
    second = Outage(row="18", started_at=at(20), ended_at=at(50), can_expire_leases=False)
    history = SampleHistory(outages=[first, second])
    history.calls[1] = call(2, started=60)
    assert history.kinds() == set()

    history.outages = [first]
    assert history.kinds() == {FindingKind.LATE}


def test_run_is_after_cancel_when_the_response_did_not_list_it_as_in_flight() -> None:
    history = SampleHistory().without(2)
    history.operations.append(operation(Verb.CANCEL, sent=1.9, answered=2.005, in_flight=[]))

    assert history.kinds() == {FindingKind.AFTER_CANCEL}


@pytest.mark.parametrize(
    ("verb", "kinds"), [(Verb.PAUSE, set()), (Verb.CANCEL, {FindingKind.AFTER_CANCEL})]
)
def test_run_of_a_crashed_executor_is_attempted_again_during_a_pause_only(
    verb: Verb, kinds: set[FindingKind]
) -> None:
    history = with_expired_lease(CRASH)
    history.operations.append(operation(verb, sent=2.3, answered=2.35, in_flight=[]))
    history.operations.append(operation(Verb.RESUME, sent=2.9, answered=2.95))

    assert history.kinds() == kinds


def test_run_is_unexpected_after_a_cancellation() -> None:
    history = SampleHistory()
    history.operations.append(operation(Verb.CANCEL, sent=2.4, answered=2.5, in_flight=[]))

    assert history.kinds() == {FindingKind.AFTER_CANCEL, FindingKind.UNEXPECTED}


def test_run_in_flight_may_start_within_two_seconds_after_a_cancellation() -> None:
    history = SampleHistory().without(2)
    in_flight = [run_id(ID, at(2))]
    cancel = operation(Verb.CANCEL, sent=1.9, answered=1.95, in_flight=in_flight)
    history.operations.append(cancel)
    assert history.kinds() == set()

    history.calls[1] = call(2, started=4)
    assert history.kinds() == {FindingKind.AFTER_CANCEL}


def test_run_of_the_old_version_is_after_cancel_when_the_new_version_is_acknowledged() -> None:
    history = SampleHistory()
    new = put(dict(history.operations[0].body["when"]), version="v2")
    history.operations.append(replace(new, sent_at=at(1.5), answered_at=at(1.6)))
    history.calls[1:] = [call(2, body='{"version":"v2"}'), call(3)]

    assert history.kinds() == {FindingKind.AFTER_CANCEL}


def test_run_is_unexpected_at_a_time_that_no_schedule_requires() -> None:
    history = SampleHistory()
    history.calls.append(call(2.5))
    history.runs.append(row(2.5))
    history.attempts.append(attempt(2.5))

    assert history.kinds() == {FindingKind.UNEXPECTED}


def test_run_is_unexpected_when_its_schedule_is_unknown() -> None:
    history = SampleHistory()
    history.calls.append(replace(call(2), schedule_id=OTHER_ID, run_id=run_id(OTHER_ID, at(2))))

    assert history.kinds() == {FindingKind.UNEXPECTED}


def test_run_is_unexpected_when_its_schedule_was_rejected() -> None:
    history = SampleHistory()
    history.operations[0] = replace(history.operations[0], error_code="conflict")

    assert history.kinds() == {FindingKind.UNEXPECTED, FindingKind.UNREPORTED}


@pytest.mark.parametrize(
    ("answered", "kinds"), [(2.9, {FindingKind.UNREPORTED}), (3.1, set[FindingKind]())]
)
def test_put_may_be_rejected_as_ended_only_after_the_last_run(
    answered: float, kinds: set[FindingKind]
) -> None:
    history = SampleHistory()
    rejected = replace(history.operations[0], response={}, error_code="schedule_ended")
    history.operations.append(replace(rejected, sent_at=at(1.5), answered_at=at(answered)))

    assert history.kinds() == kinds


def test_command_without_a_response_is_unreported_and_permits_its_runs() -> None:
    history = SampleHistory()
    history.operations.append(operation(Verb.TRIGGER, sent=1, answered=None))

    assert history.kinds() == {FindingKind.UNREPORTED}


@pytest.mark.parametrize("when", [{"at": str(at(1))}, {"every": "1s", "until": "success"}])
@pytest.mark.parametrize("answered", [0.1, None])
def test_single_run_is_missing_only_when_its_put_was_acknowledged(
    answered: float | None, when: dict[str, str]
) -> None:
    history = SampleHistory(
        operations=[put(when, answered=answered)], calls=[], runs=[], attempts=[]
    )

    kind = FindingKind.UNREPORTED if answered is None else FindingKind.MISSING
    assert history.kinds() == {kind}


def test_run_before_the_response_is_permitted_but_not_required() -> None:
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}
    history = SampleHistory(operations=[put(when, answered=1.5)])

    assert history.without(0).kinds() == set()
