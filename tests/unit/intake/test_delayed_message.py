"""The put of a one-shot schedule from a delayed message: delay, properties, headers and key."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic

from harebell.contract.commands import SchedulePut
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.target import AmqpTarget
from harebell.intake.delayed.message import DelayedMessage, key_of, key_of_digest, parse_delay
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.received_properties import ReceivedProperties

TEN_YEARS = 3653 * 86_400_000
SENT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def received(
    body: bytes = b"{}",
    *,
    headers: dict[str, Any] | None = None,
    message_id: str | None = "m-1",
    exchange: str = "orders",
    **properties: Any,
) -> ReceivedMessage:
    return ReceivedMessage(
        body=body,
        exchange=exchange,
        routing_key="created",
        message_id=message_id,
        headers={"x-delay": 1_500} if headers is None else headers,
        properties=ReceivedProperties(
            Basic.Properties(message_id=message_id, **properties).marshal()
        ),
    )


def target_of(message: ReceivedMessage) -> AmqpTarget:
    """Return the target as the ticker and the executor parse it."""
    put = parse(SchedulePut, DelayedMessage.of(message).put("key"))
    stored = parse(SchedulePut, put.to_json())
    assert isinstance(stored.target, AmqpTarget)
    return stored.target


@pytest.mark.parametrize(
    ("value", "delay"),
    [(1, 1), (1_500.0, 1_500), ("2000", 2_000), (0, 0), (-7, -7), (TEN_YEARS, TEN_YEARS)],
)
def test_delay_is_a_whole_number_of_milliseconds(value: object, delay: int) -> None:
    assert parse_delay({"x-delay": value}) == delay
    assert parse_delay({}) == 0


@pytest.mark.parametrize("value", [True, None, "soon", "1.5", 1.5, [1], b"1", TEN_YEARS + 1])
def test_other_delay_is_refused_with_its_field(value: object) -> None:
    with pytest.raises(InvalidInput) as error:
        DelayedMessage.of(received(headers={"x-delay": value}))

    assert (error.value.code, error.value.field) == ("invalid_delay", "x-delay")


def test_put_waits_for_the_delay_and_replaces_the_message_with_the_key() -> None:
    message = DelayedMessage.of(received())

    put = message.put(message.key or "")

    assert put["key"] == "delayed/orders/m-1"
    assert put["when"] == {"after": "1500ms"}
    assert put["target"]["amqp"]["exchange"] == "orders.due"
    assert (put["expected_version"], put["revive"], put["tags"]) == ("any", True, ["delayed"])


@pytest.mark.parametrize("headers", [{}, {"x-delay": 0}, {"x-delay": -3}])
def test_message_without_a_delay_runs_at_once_and_keeps_its_header(headers: dict[str, int]) -> None:
    message = DelayedMessage.of(received(headers=headers))

    assert message.put("key")["when"] == {"now": True}
    assert message.key is None
    assert message.call.get("headers", {}) == headers


@pytest.mark.parametrize("body", [b"", b'{"a": 1}', "é".encode(), b"\xff\x00", b"a\x00b", b"\n"])
def test_body_stays_the_same(body: bytes) -> None:
    assert (target_of(received(body)).amqp.body() or b"") == body


def test_properties_stay_the_same_and_absent_ones_stay_absent() -> None:
    texts: dict[str, Any] = {
        "content_type": "a/b",
        "content_encoding": "gzip",
        "correlation_id": "c",
    }
    given = target_of(
        received(
            **texts,
            reply_to="shop.replies",
            app_id="checkout",
            message_type="created",
            priority=0,
            expiration="60000",
            timestamp=SENT,
        )
    ).amqp
    absent = target_of(received(message_id=None)).amqp

    assert {name: getattr(given, name) for name in texts if name != "content_type"} == {
        name: text for name, text in texts.items() if name != "content_type"
    }
    assert (given.content_type(), given.reply_to, given.app_id) == (
        "a/b",
        "shop.replies",
        "checkout",
    )
    assert (given.type, given.priority, given.message_id) == ("created", 0, "m-1")
    assert given.expiration is not None
    assert (given.expiration.total_seconds(), given.timestamp) == (60, SENT)
    assert absent.content_type() is None
    assert absent.is_bare


def test_headers_stay_the_same_except_those_that_the_broker_and_harebell_write() -> None:
    values: dict[str, Any] = {
        "text": "a",
        "number": 2**40,
        "ratio": 0.5,
        "flag": False,
        "nothing": None,
        "list": [1, None],
        "table": {"a": {"b": "c"}},
        "long": "x" * 5_000,
        "bytes": bytearray(b"\xff"),
        "time": SENT,
        "host": "h",
    }
    written = {"x-death": [], "x-delivery-count": 3, "Harebell-Run-Id": "r", "webhook-id": "w"}

    target = target_of(received(headers={**values, **written, "x-delay": 10}))

    found = {name: getattr(each, "value", each) for name, each in target.amqp.headers.items()}
    assert found == {**values, "x-delay": -10}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"CC": ["a"]}, "reserved_header"),
        ({"BCC": ["a"]}, "reserved_header"),
        ({"price": Decimal("1.5")}, "invalid_header"),
        ({"list": [b"\xff"]}, "invalid_header"),
        ({"ratio": float("inf")}, "invalid_header"),
    ],
)
def test_header_that_cannot_stay_the_same_is_refused(headers: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as error:
        DelayedMessage.of(received(headers=headers))

    assert error.value.code == code
    assert next(iter(headers)) in error.value.reason


def test_larger_body_than_a_payload_is_refused() -> None:
    DelayedMessage.of(received(b"x" * 65_536))

    with pytest.raises(InvalidInput) as error:
        DelayedMessage.of(received(b"x" * 65_537))

    assert error.value.code == "too_large"


def test_keys_of_different_messages_differ_and_have_at_most_256_characters() -> None:
    keys = [
        key_of("a", "b/c"),
        key_of("a/b", "c"),
        key_of("a", "x" * 255),
        key_of("a", "x" * 254),
        key_of("%2F" * 41, "x" * 255),
        key_of_digest("a", "0" * 32),
        key_of_digest("a", "0" * 32, "#1"),
    ]

    assert len(set(keys)) == len(keys)
    assert max(map(len, keys)) <= 256


def test_digest_depends_on_each_part_of_a_message_and_not_on_its_redelivery() -> None:
    first = received(message_id=None)
    again = received(message_id=None, headers={"x-delay": 1_500, "x-delivery-count": 1})
    others = [
        received(b"[]", message_id=None),
        received(message_id=None, headers={"x-delay": 1_501}),
        received(message_id=None, priority=1),
        received(message_id=None, exchange="mail"),
    ]

    digests = [DelayedMessage.of(each).digest for each in (first, *others)]

    assert DelayedMessage.of(again).digest == digests[0]
    assert len(set(digests)) == len(digests)
