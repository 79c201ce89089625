"""Tests of the trace context: valid headers are kept in one form, and invalid ones are ignored."""

import pytest

from harebell.contract.trace import TraceContext, parse_trace, read_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_context_is_read_from_the_headers_of_a_message() -> None:
    found = read_trace({"traceparent": VALID, "tracestate": "a=1, b@c=2"})

    assert found == TraceContext(VALID, "a=1,b@c=2")
    assert (found.trace_id, found.span_id, found.is_sampled) == (TRACE, SPAN, True)


def test_message_without_the_header_has_no_context() -> None:
    assert read_trace({"tracestate": "a=1"}) is None


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        7,
        None,
        True,
        ["00"],
        VALID.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{VALID}-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{SPAN}-01",
        "0" * 1_000_000,
        b"\xff\xfe",
    ],
)
def test_invalid_traceparent_is_ignored(traceparent: object) -> None:
    assert parse_trace(traceparent, "a=1") is None


@pytest.mark.parametrize(
    ("traceparent", "flags"),
    [
        (VALID.encode(), "01"),
        (f" {VALID} ", "01"),
        (f"00-{TRACE}-{SPAN}-00", "00"),
        (f"00-{TRACE}-{SPAN}-03", "01"),
        (f"00-{TRACE}-{SPAN}-fe", "00"),
        (f"cc-{TRACE}-{SPAN}-01-of-a-later-version", "01"),
    ],
)
def test_other_forms_become_the_form_of_version_00(traceparent: object, flags: str) -> None:
    assert parse_trace(traceparent) == TraceContext(f"00-{TRACE}-{SPAN}-{flags}")


@pytest.mark.parametrize(
    "tracestate",
    [
        7,
        "",
        ",",
        "no value",
        "UPPER=1",
        "a=1,a=2",
        "a=\n",
        "a=1\r\nX-Injected: 1",
        "a=" + "1" * 600,
        ",".join(f"k{number}=1" for number in range(33)),
    ],
)
def test_invalid_tracestate_is_omitted(tracestate: object) -> None:
    assert parse_trace(VALID, tracestate) == TraceContext(VALID)


def test_headers_contain_the_state_only_if_there_is_one() -> None:
    assert TraceContext(VALID).headers() == {"traceparent": VALID}
    assert TraceContext(VALID, "a=1").headers() == {"traceparent": VALID, "tracestate": "a=1"}
