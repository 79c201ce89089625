"""Messages: what is strict, what a refusal names, and what events are made of."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from pydantic import ValidationError

from harebell.contract.commands import SchedulePut
from harebell.contract.control import StopRequest
from harebell.contract.errors import InvalidInput
from harebell.contract.events import EVENT_DATA, ScheduleEventData, make_event
from harebell.contract.message import MAX_INPUT_SHOWN, field_path, parse, quoted
from harebell.contract.target import AmqpMessage, HttpCall

HOOK: Final = "https://acme.example/hook"


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        ((), ""),
        (("when", "<cron", "cron"), "when.cron"),
        (("items", 1, "key"), "items[1].key"),
        ((0, "key"), "[0].key"),
    ],
)
def test_a_field_is_named_as_a_user_would_write_it(loc: tuple[int | str, ...], path: str) -> None:
    assert field_path(loc) == path


@pytest.mark.parametrize("value", ["x" * 10_000, [["x" * 100] * 100] * 100, b"x" * 10_000])
def test_what_was_refused_is_shown_in_a_few_words(value: object) -> None:
    assert len(quoted(value)) <= MAX_INPUT_SHOWN + len("...")


def test_a_message_does_not_change() -> None:
    stop = StopRequest(run_id="a")

    with pytest.raises(ValidationError):
        stop.run_id = "b"  # type: ignore[misc]  # that it is refused is the point


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ({}, None, None),
        ({"json": None}, b"null", "application/json"),
        ({"json": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"text": ""}, b"", "text/plain; charset=utf-8"),
        ({"text": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
    ],
)
def test_a_payload_is_sent_as_it_was_given(
    body: dict[str, Any], sent: bytes | None, content_type: str | None
) -> None:
    call = parse(HttpCall, {"url": HOOK, **body})

    assert call.body() == sent
    assert call.content_type() == content_type


@pytest.mark.parametrize("body", [{"json": None, "text": ""}, {"text": "a", "base64": ""}])
def test_a_payload_is_one_body_at_most(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="at most one") as refused:
        parse(HttpCall, {"url": HOOK, **body})

    assert refused.value.code == "invalid_payload"


@pytest.mark.parametrize("name", ["Harebell-Run-Id", "idempotency-key", "HOST", "Content-Length"])
def test_headers_that_are_ours_or_the_connections_cannot_be_set(name: str) -> None:
    for model, call in ((HttpCall, {"url": HOOK}), (AmqpMessage, {"exchange": "acme.jobs"})):
        with pytest.raises(InvalidInput) as refused:
            parse(model, {**call, "headers": {name: "x"}})

        assert (refused.value.code, refused.value.field) == ("reserved_header", "headers")


def test_headers_of_the_broker_are_left_out() -> None:
    message = parse(AmqpMessage, {"exchange": "acme.jobs", "headers": {"x-death": "1", "a": 2}})

    assert message.headers == {"a": 2}


def test_an_event_repeated_has_the_same_id_and_leaves_nulls_out() -> None:
    at = datetime(2026, 11, 20, 14, tzinfo=UTC)
    first, second = (
        make_event(
            "acme", "schedule.paused", ScheduleEventData(key="a"), id_="f", subject="a", at=at
        )
        for _ in range(2)
    )

    assert first == second
    assert (first["id"], first["source"], first["type"]) == (
        "f/schedule.paused",
        "/harebell/acme",
        "harebell.schedule.paused.v1",
    )
    assert first["data"] == {"key": "a"}


def test_facts_are_told_in_the_past_tense() -> None:
    told = {verb.partition(".")[2] for verb in EVENT_DATA} - {"dead", "grown", "held", "retrying"}

    assert [word for word in told if not word.endswith("ed")] == []


def test_two_kinds_at_once_are_one_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(
            SchedulePut, {"when": {"now": True, "after": "5s"}, "target": {"task": {"name": "t"}}}
        )

    assert (refused.value.code, refused.value.field) == ("invalid_when", "when")
    assert "found now, after" in refused.value.reason
