"""Tests of the spans of attempts: their parents, their links and the headers of their calls."""

from datetime import datetime
from ipaddress import ip_network
from typing import Any

import aiohttp.web
import pytest
from aio_pika import Message
from aiohttp.test_utils import TestServer
from tests.fakes.attempts import attempt
from tests.fakes.lane import LaneHarness
from tests.fakes.spans import NEVER, ids, link_ids, parent_id, recorded_spans
from tests.fakes.target_connections import amqp_targets
from tests.fakes.tickets import after, ticket

from harebell.contract.errors import BrokerUnavailable
from harebell.contract.target import AmqpMessage, HttpCall
from harebell.contract.ticket import RunSpec
from harebell.contract.trace import TraceContext, TraceOrigin
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.attempts import AttemptSpans, exemplar_of
from harebell.executor.targets.http import HttpTargets

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
PREVIOUS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LOCAL = Egress(allowed=(ip_network("127.0.0.0/8"),))


def claimed(
    traceparent: str | None, *, at: datetime, number: int = 1, previous: str | None = None
) -> ClaimedRun:
    """Return a claimed run of a schedule whose command was accepted at `at`."""
    plain = ticket(0, at)
    origin = None if traceparent is None else TraceOrigin(traceparent=traceparent, at=at)
    run_spec = plain.run_spec.model_copy(update={"trace": origin})
    of_run = plain.model_copy(update={"run_spec": run_spec, "previous_trace": previous})
    return ClaimedRun(ticket=of_run, token=2, attempt=number, lease=15, renewed_at=0)


def test_attempt_of_an_unsampled_command_is_not_recorded_but_continues_its_trace() -> None:
    run = claimed(UNSAMPLED, at=after(0))

    with recorded_spans() as spans:
        span = AttemptSpans().start(run, after(1))
        assert span is not None
        span.end()

    assert spans.all == []
    assert run.trace is not None
    assert (run.trace.trace_id, run.trace.is_sampled, run.recorded_trace) == (TRACE, False, None)
    assert exemplar_of(run.trace) is None


def test_sampler_decides_for_a_new_trace_whatever_the_linked_command_decided() -> None:
    with recorded_spans(NEVER) as spans:
        late = AttemptSpans().start(claimed(SAMPLED, at=after(0)), after(61))
        soon = AttemptSpans().start(claimed(SAMPLED, at=after(0)), after(1))

    assert late is not None
    assert soon is not None
    assert (late.is_recording, soon.is_recording) == (False, True)
    assert spans.all == []


def test_attempt_links_to_its_command_and_to_the_previous_attempt() -> None:
    run = claimed(SAMPLED, at=after(0), number=2, previous=PREVIOUS)

    with recorded_spans() as spans:
        span = AttemptSpans().start(run, after(1))
        assert span is not None
        span.end()

    recorded = spans.one("process run")
    assert parent_id(recorded) is None
    assert link_ids(recorded) == [SPAN, PREVIOUS.split("-")[2]]
    assert run.recorded_trace == f"00-{ids(recorded)[0]}-{ids(recorded)[1]}-01"


@pytest.mark.parametrize(("seconds", "passed_on"), [(1, SAMPLED), (61, None)])
def test_context_of_the_command_passes_through_without_opentelemetry(
    seconds: float, passed_on: str | None
) -> None:
    run = claimed(SAMPLED, at=after(0))

    assert AttemptSpans().start(run, after(seconds)) is None
    assert run.trace == (None if passed_on is None else TraceContext(passed_on))
    assert run.recorded_trace is None


def test_run_without_a_trace_has_no_trace_header() -> None:
    run = claimed(None, at=after(0))

    assert AttemptSpans().start(run, after(1)) is None
    assert run.trace is None
    assert "traceparent" not in attempt().headers()


def test_override_of_a_manual_run_replaces_the_trace_of_its_version() -> None:
    plain = ticket()
    origin = TraceOrigin(traceparent=SAMPLED, at=after(0))
    run_spec: RunSpec = plain.run_spec.model_copy(update={"trace": origin})
    override = {"trace": {"traceparent": PREVIOUS, "at": "2026-11-20T09:00:30Z"}}
    triggered = plain.model_copy(update={"run_spec": run_spec, "override": override})

    assert triggered.origin == TraceOrigin(traceparent=PREVIOUS, at=after(30))


async def test_attempt_ends_the_span_of_a_failed_attempt_with_its_error_code() -> None:
    harness = await LaneHarness.create(1)
    run = harness.claimed(1, task="unknown")

    with recorded_spans() as spans:
        outcome = await harness.attempts.perform(run)

    assert isinstance(outcome, Failure)
    recorded = spans.one("process run")
    assert recorded.attributes is not None
    assert recorded.attributes["error.type"] == "unknown_task"
    assert recorded.attributes["harebell.run.id"] == run.ticket.run_id
    assert not recorded.status.is_ok


async def test_each_request_of_a_redirect_is_a_span_whose_context_the_server_receives() -> None:
    received: list[str | None] = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        received.append(request.headers.get("traceparent"))
        if request.path == "/moved":
            return aiohttp.web.Response(status=307, headers={"Location": "/end?token=secret"})
        return aiohttp.web.Response(status=500)

    app = aiohttp.web.Application()
    app.router.add_route("*", "/{path}", answer)
    of_run = attempt()._replace(trace=TraceContext(SAMPLED))
    async with (
        TestServer(app) as server,
        HttpTargets(LOCAL, TenantPolicies.unrestricted()) as targets,
    ):
        call = HttpCall.model_validate(
            {"url": str(server.make_url("/moved")), "method": "POST", "follow_redirects": True}
        )
        with recorded_spans() as spans:
            await targets.call(call, of_run, 5)
            unsampled = of_run._replace(trace=TraceContext(UNSAMPLED))
            await targets.call(call, unsampled, 5)

    first, second = spans.all
    assert received[:2] == [f"00-{TRACE}-{ids(each)[1]}-01" for each in (first, second)]
    assert received[2:] == [UNSAMPLED, UNSAMPLED]
    assert [parent_id(first), parent_id(second)] == [SPAN, SPAN]
    assert second.attributes is not None
    assert second.attributes["http.request.resend_count"] == 1
    assert second.attributes["error.type"] == "500"
    assert "secret" not in str(second.attributes) + str(first.attributes)


@pytest.mark.parametrize("error", [None, BrokerUnavailable("The broker is gone.")])
async def test_message_of_an_amqp_target_carries_the_context_of_its_span(
    error: BrokerUnavailable | None,
) -> None:
    sent: list[Message] = []

    async def publish(*call: Any, **_: Any) -> None:
        sent.append(call[-1])
        if error is not None:
            raise error

    targets = amqp_targets(publish)
    message = AmqpMessage.model_validate({"exchange": "bills", "routing_key": "due"})

    with recorded_spans() as spans:
        await targets.call(message, attempt()._replace(trace=TraceContext(SAMPLED)), 5)

    recorded = spans.one("send bills")
    assert sent[0].headers["traceparent"] == f"00-{TRACE}-{ids(recorded)[1]}-01"
    assert parent_id(recorded) == SPAN
    assert recorded.attributes is not None
    assert recorded.attributes.get("error.type") == (None if error is None else error.code)
