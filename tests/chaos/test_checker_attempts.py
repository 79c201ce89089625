"""The judge of attempts: which second one is explained, which is one too many, or too soon."""

from dataclasses import replace
from typing import Any

import pytest
from tests.chaos.result import Kind
from tests.chaos.sample_histories import CRASH, CUT, Past, at, attempt, call, lapsed_once, put, row


def test_doubled_is_a_second_attempt_after_a_recorded_success() -> None:
    past = Past()
    past.calls.append(call(2, began=2.5, attempt=2, token=4))
    past.attempts.append(attempt(2, number=2))
    past.runs[1]["attempt"] = 2

    assert Kind.DOUBLED in past.kinds()


def test_doubled_is_the_same_token_twice() -> None:
    past = Past()
    past.calls.append(call(2, began=2.5))

    assert Kind.DOUBLED in past.kinds()


def test_a_second_attempt_after_a_crash_is_explained_and_counted() -> None:
    verdict = lapsed_once(CRASH).judged()

    assert verdict.is_kept
    assert verdict.repeated == 1


def test_doubled_is_a_lapse_where_no_executor_can_have_crashed() -> None:
    assert lapsed_once(CUT).kinds() == {Kind.DOUBLED}


def test_doubled_is_a_second_attempt_whose_token_is_not_higher() -> None:
    past = lapsed_once(CRASH)
    past.calls[-1] = replace(past.calls[-1], token=1)

    assert Kind.DOUBLED in past.kinds()


def test_concurrent_is_a_run_that_begins_while_another_of_its_schedule_runs() -> None:
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}
    past = Past(operations=[put(when, overlap="queue")])
    past.calls[0] = call(1, lasted=1.5)

    assert past.kinds() == {Kind.CONCURRENT}


def test_runs_that_may_overlap_are_not_concurrent() -> None:
    past = Past()
    past.calls[0] = call(1, lasted=1.5)

    assert past.kinds() == set()


def test_early_is_a_retry_before_its_backoff_is_over() -> None:
    backoff = {"base": "700ms", "factor": 1, "jitter": "none"}
    retry = {"max_attempts": 3, "backoff": backoff}
    past = Past(
        operations=[put({"at": str(at(1))}, retry=retry, behaviour="?fail=1")],
        calls=[call(1, ok=False), call(1, began=1.5, attempt=2, token=4)],
        runs=[row(1, attempt=2)],
        attempts=[attempt(1, "failed"), attempt(1, number=2)],
    )

    assert past.kinds() == {Kind.EARLY}


def test_a_run_that_was_attempted_before_a_change_goes_on_as_it_began() -> None:
    past = lapsed_once(CRASH)
    new = put(dict(past.operations[0].body["when"]), says="v2")
    past.operations.append(replace(new, asked_at=at(2.2), notified_at=at(2.3)))
    past.calls[2] = call(3, body='{"says":"v2"}')

    assert past.kinds() == set()


def test_record_is_a_key_that_is_not_the_runs() -> None:
    past = Past()
    past.calls[1] = call(2, idempotency_key="another")

    assert past.kinds() == {Kind.RECORD}


@pytest.mark.parametrize(
    "wrong", [{"finished_at": None}, {"attempt": 2}, {"attempt": 6}, {"state": "dead"}]
)
def test_record_is_a_row_that_contradicts_itself(wrong: dict[str, Any]) -> None:
    past = Past()
    past.runs[1] |= wrong

    assert past.kinds() & {Kind.RECORD, Kind.LOST}


def test_a_schedule_until_success_succeeds_exactly_once() -> None:
    when = {"every": "1s", "until": "success"}
    past = Past(operations=[put(when, retry={"max_attempts": 1}, behaviour="?broken=x")])

    assert past.kinds() == {Kind.DOUBLED}


def test_a_schedule_from_completion_runs_as_often_as_it_says() -> None:
    when = {"every": "1s", "from": "completion", "times": 4}

    assert Past(operations=[put(when)]).kinds() == {Kind.LOST}
