"""Tests of the log lines of transitions: one for each, with its ids, in the chosen modes."""

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.fakes.publisher import FakePublisher
from tests.fakes.tickets import NINE, header, ticket

from harebell.contract.trace import TraceContext
from harebell.domain.run_states import AttemptCompletion, Reason, RunState
from harebell.messaging import run_log
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.run_events import run_event, run_event_without_attempt
from harebell.messaging.run_log import RunLogMode

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
IDS = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


@pytest.fixture(autouse=True)
def default_mode() -> Iterator[None]:
    yield
    run_log.use("failures")


def completed(state: RunState, error: str | None = None) -> OutgoingEvent:
    of_run = ticket()
    completion = AttemptCompletion(
        of_run.run_key, 2, state, "failed", NINE, NINE, error_code=error, trace=TRACEPARENT
    )
    return run_event(of_run, completion, attempt=3)


async def lines(mode: RunLogMode, *events: OutgoingEvent) -> list[Any]:
    run_log.use(mode)
    with capture_logs() as captured:
        await publish_events(FakePublisher(), events)
    return captured


@pytest.mark.requirement("S120")
@pytest.mark.parametrize(
    ("mode", "states"),
    [
        ("off", []),
        ("failures", ["retrying", "dead", "expired", "cancelled"]),
        ("all", ["succeeded", "retrying", "dead", "expired", "cancelled"]),
    ],
)
async def test_mode_selects_the_transitions(mode: RunLogMode, states: list[str]) -> None:
    events = [
        completed(RunState(state))
        for state in ("succeeded", "retrying", "dead", "expired", "cancelled")
    ]

    assert [line["state"] for line in await lines(mode, *events)] == states


async def test_line_of_an_attempt_has_its_ids_and_no_text_of_the_error() -> None:
    [line] = await lines("failures", completed(RunState.DEAD, "http_404"))

    assert line == {
        "event": "run changed",
        "log_level": "info",
        "state": "dead",
        "run": ticket().run_id,
        "attempt": 3,
        "tenant": "default",
        "reason": "http_404",
        "error": "http_404",
        "duration_ms": 0.0,
        **IDS,
    }


async def test_line_of_a_skipped_range_has_the_number_of_its_runs() -> None:
    event = run_event_without_attempt(
        "acme",
        ticket().run_key,
        state=RunState.SKIPPED,
        reason=Reason.MISSED,
        finished_at=NINE,
        schedule_key="bills",
        runs=7,
    )

    [line] = await lines("failures", event)

    assert (line["state"], line["reason"], line["runs"]) == ("skipped", "missed", 7)
    assert (line["tenant"], line["key"]) == ("acme", "bills")


def test_staged_and_running_lines_are_written_only_in_the_mode_all() -> None:
    with capture_logs() as captured:
        run_log.log_staged([header()])
        run_log.log_start(ticket(), 1, TraceContext(TRACEPARENT), at=NINE)
        run_log.use("all")
        run_log.log_staged([header()])
        run_log.log_start(ticket(), 1, TraceContext(TRACEPARENT), at=NINE)

    staged, running = captured
    assert (staged["state"], staged["run"], staged["attempt"]) == ("staged", ticket().run_id, 0)
    assert (running["state"], running["attempt"], running["lateness"]) == ("running", 1, 0.0)
    assert {name: running[name] for name in IDS} == IDS
