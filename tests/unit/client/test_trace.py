"""Tests of the trace headers of the client: explicit, from a span, or none."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.fakes.spans import ids

from harebell.client import InvalidInput, trace_context
from harebell.client.trace import trace_headers

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_requests_without_a_span_have_no_trace_header() -> None:
    assert trace_headers() == {}


def test_explicit_context_applies_within_its_block() -> None:
    with trace_context(TRACEPARENT, "a=1"):
        inside = trace_headers()

    assert inside == {"traceparent": TRACEPARENT, "tracestate": "a=1"}
    assert trace_headers() == {}


def test_current_span_of_opentelemetry_is_sent() -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("tests")

    with tracer.start_as_current_span("order") as span:
        headers = trace_headers()

    trace_id, span_id = ids(span)  # type: ignore[arg-type]  # the span of the SDK is readable
    assert headers == {"traceparent": f"00-{trace_id}-{span_id}-01"}


def test_invalid_traceparent_is_an_error_that_names_the_form() -> None:
    with (
        pytest.raises(InvalidInput, match="must have a form like 00-") as raised,
        trace_context("tomorrow"),
    ):
        raise AssertionError("The block must not begin.")

    assert (raised.value.field, raised.value.code) == ("traceparent", "invalid_traceparent")
