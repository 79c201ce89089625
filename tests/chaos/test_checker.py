"""The judge finds every kind of broken promise, and nothing in a history that kept them all."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from tests.acceptance.record import Call
from tests.acceptance.stack import run_id
from tests.chaos.checker import judge
from tests.chaos.history import History, Operation, Outage, Verb
from tests.chaos.verdict import Kind, Verdict

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ID: Final = str(UUID(int=7))
OTHER: Final = str(UUID(int=8))


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(
    when: dict[str, Any], *, told: float | None = 0.1, says: str = "v1", **more: Any
) -> Operation:
    behaviour = more.pop("behaviour", "")
    hook = {"http": {"url": f"http://127.0.0.1:1/x{behaviour}", "json": {"says": says}}}
    body = {"key": "k", "when": when, "target": hook, **more}
    answer = {"id": ID, "next_at": []} if told is not None else {}
    return Operation("k", Verb.PUT, at(0), None if told is None else at(told), body, answer)


def said(verb: Verb, asked: float, told: float | None, **answer: Any) -> Operation:
    return Operation("k", verb, at(asked), None if told is None else at(told), {}, answer)


def call(instant: float, *, began: float | None = None, lasted: float = 0.1, **more: Any) -> Call:
    began = instant + 0.01 if began is None else began
    given = Call(
        run_id=run_id(ID, at(instant)),
        schedule_id=ID,
        scheduled_for=at(instant),
        attempt=1,
        token=2,
        idempotency_key=run_id(ID, at(instant)),
        body='{"says":"v1"}',
        started_at=at(began),
        finished_at=at(began + lasted),
        ok=True,
    )
    return replace(given, **more)


def row(instant: float, state: str = "succeeded", reason: str | None = None, **more: Any) -> Any:
    is_over = state not in {"staged", "running", "retrying"}
    return {
        "schedule_id": UUID(ID),
        "scheduled_for": at(instant),
        "state": state,
        "reason": reason,
        "attempt": 1 if state in {"succeeded", "dead"} else 0,
        "series": 1,
        "lease_holder": None,
        "finished_at": at(instant + 1) if is_over else None,
        "range_until": None,
    } | more


def attempt(instant: float, outcome: str = "succeeded", number: int = 1) -> Any:
    return {
        "finished_at": at(instant + 0.1),
        "schedule_id": UUID(ID),
        "scheduled_for": at(instant),
        "series": 1,
        "number": number,
        "outcome": outcome,
    }


@dataclass
class Past:
    """Three instants, each run once, unless a test says otherwise."""

    operations: list[Operation] = field(
        default_factory=lambda: [put({"every": "1s", "start": str(at(1)), "end": str(at(3))})]
    )
    calls: list[Call] = field(default_factory=lambda: [call(k) for k in (1, 2, 3)])
    runs: list[Any] = field(default_factory=lambda: [row(k) for k in (1, 2, 3)])
    attempts: list[Any] = field(default_factory=lambda: [attempt(k) for k in (1, 2, 3)])
    outages: Sequence[Outage] = ()

    def judged(self) -> Verdict:
        return judge(
            History(self.operations, self.calls, self.runs, self.attempts, self.outages, at(100))
        )

    def kinds(self) -> set[Kind]:
        return {finding.kind for finding in self.judged().findings}

    def without(self, place: int) -> "Past":
        """That run never was."""
        for each in (self.calls, self.runs, self.attempts):
            del each[place]
        return self


CRASH: Final = Outage("6", at(0.5), at(5), lapses=True)
CUT: Final = Outage("17", at(0.5), at(5), lapses=False)


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


def lapsed_once(outage: Outage) -> Past:
    past = Past(outages=[outage])
    past.calls.append(call(2, began=2.5, attempt=2, token=4))
    past.attempts = [attempt(1), attempt(2, "lapsed"), attempt(2, number=2), attempt(3)]
    past.runs[1]["attempt"] = 2
    return past


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


def test_early_is_a_millisecond_before_its_instant() -> None:
    past = Past()
    past.calls[1] = call(2, began=1.999)

    assert past.kinds() == {Kind.EARLY}


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


def test_after_cancel_is_what_begins_after_the_answer_and_was_not_named() -> None:
    past = Past().without(2)
    past.operations.append(said(Verb.CANCEL, 1.9, 2.005, in_flight=[]))

    assert past.kinds() == {Kind.AFTER_CANCEL}


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
    past.operations.append(replace(new, asked_at=at(1.5), told_at=at(1.6)))
    past.calls[1:] = [call(2, body='{"says":"v2"}'), call(3)]

    assert past.kinds() == {Kind.AFTER_CANCEL}


def test_a_run_that_was_attempted_before_a_change_goes_on_as_it_began() -> None:
    past = lapsed_once(CRASH)
    new = put(dict(past.operations[0].body["when"]), says="v2")
    past.operations.append(replace(new, asked_at=at(2.2), told_at=at(2.3)))
    past.calls[2] = call(3, body='{"says":"v2"}')

    assert past.kinds() == set()


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


def test_what_lies_before_the_answer_may_or_may_not_have_been_accepted() -> None:
    when = {"every": "1s", "start": str(at(1)), "end": str(at(3))}

    assert Past(operations=[put(when, told=1.5)]).without(0).kinds() == set()
