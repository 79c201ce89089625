"""Tests of the checks of attempts: explained, superfluous and early second attempts."""

from dataclasses import replace
from typing import Any

import pytest
from tests.chaos.result import FindingKind
from tests.chaos.sample_histories import (
    CRASH,
    DISCONNECTION,
    SampleHistory,
    at,
    attempt,
    call,
    put,
    row,
    with_expired_lease,
)


def test_second_attempt_is_duplicated_after_a_recorded_success() -> None:
    history = SampleHistory()
    history.calls.append(call(2, started=2.5, attempt=2, token=4))
    history.attempts.append(attempt(2, number=2))
    history.runs[1]["attempt"] = 2

    assert FindingKind.DUPLICATED in history.kinds()


def test_call_is_duplicated_when_its_token_repeats() -> None:
    history = SampleHistory()
    history.calls.append(call(2, started=2.5))

    assert FindingKind.DUPLICATED in history.kinds()


def test_second_attempt_after_a_crash_is_explained_and_counted() -> None:
    result = with_expired_lease(CRASH).check()

    assert result.has_kept_promises
    assert result.repeated == 1


def test_second_attempt_is_duplicated_when_no_executor_can_have_crashed() -> None:
    assert with_expired_lease(DISCONNECTION).kinds() == {FindingKind.DUPLICATED}


def test_second_attempt_is_duplicated_when_its_token_is_not_higher() -> None:
    history = with_expired_lease(CRASH)
    history.calls[-1] = replace(history.calls[-1], token=1)

    assert FindingKind.DUPLICATED in history.kinds()


def test_run_is_concurrent_when_it_starts_while_another_run_of_its_schedule_runs() -> None:
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}
    history = SampleHistory(operations=[put(when, overlap="queue")])
    history.calls[0] = call(1, duration=1.5)

    assert history.kinds() == {FindingKind.CONCURRENT}


def test_run_is_not_concurrent_when_the_policy_allows_overlap() -> None:
    history = SampleHistory()
    history.calls[0] = call(1, duration=1.5)

    assert history.kinds() == set()


def test_retry_is_early_before_the_end_of_its_backoff() -> None:
    backoff = {"base": "700ms", "factor": 1, "jitter": "none"}
    retry = {"max_attempts": 3, "backoff": backoff}
    history = SampleHistory(
        operations=[put({"at": str(at(1))}, retry=retry, query="?fail=1")],
        calls=[call(1, ok=False), call(1, started=1.5, attempt=2, token=4)],
        runs=[row(1, attempt=2)],
        attempts=[attempt(1, "failed"), attempt(1, number=2)],
    )

    assert history.kinds() == {FindingKind.EARLY}


def test_run_keeps_its_version_when_an_attempt_preceded_the_change() -> None:
    history = with_expired_lease(CRASH)
    new = put(dict(history.operations[0].body["when"]), version="v2")
    history.operations.append(replace(new, sent_at=at(2.2), answered_at=at(2.3)))
    history.calls[2] = call(3, body='{"version":"v2"}')

    assert history.kinds() == set()


def test_call_is_inconsistent_with_the_key_of_another_run() -> None:
    history = SampleHistory()
    history.calls[1] = call(2, idempotency_key="another")

    assert history.kinds() == {FindingKind.INCONSISTENT}


@pytest.mark.parametrize(
    "wrong", [{"finished_at": None}, {"attempt": 2}, {"attempt": 6}, {"state": "dead"}]
)
def test_row_is_inconsistent_when_its_columns_contradict_each_other(wrong: dict[str, Any]) -> None:
    history = SampleHistory()
    history.runs[1] |= wrong

    assert history.kinds() & {FindingKind.INCONSISTENT, FindingKind.MISSING}


def test_run_is_duplicated_when_a_schedule_until_success_succeeds_twice() -> None:
    when = {"every": "1s", "until": "success"}
    history = SampleHistory(operations=[put(when, retry={"max_attempts": 1}, query="?broken=x")])

    assert history.kinds() == {FindingKind.DUPLICATED}


def test_run_is_missing_when_a_schedule_from_completion_has_fewer_runs_than_times() -> None:
    when = {"every": "1s", "from": "completion", "times": 4}

    assert SampleHistory(operations=[put(when)]).kinds() == {FindingKind.MISSING}
