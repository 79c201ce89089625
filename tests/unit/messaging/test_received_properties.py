"""Properties are decoded when a service reads them, and any bytes are read or refused."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.encode import field_table
from pamqp.header import ContentHeader
from tests.rig.amqp_wire import long_text, short_text

from harebell.messaging import pamqp_patch
from harebell.messaging.received_properties import (
    MAX_DEPTH,
    MAX_SHORT_TEXT,
    LazyHeaders,
    ReceivedProperties,
    Undecodable,
    decode_table,
)
from harebell.messaging.received_properties import short_text as decoded

HEADERS, TIMESTAMP, MESSAGE_ID = 1 << 13, 1 << 6, 1 << 7
MICROSECONDS = 1_795_738_538_000_000
EVERY_PROPERTY = Basic.Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={"a": 1, "b": "text"},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=datetime(2026, 11, 27, 9, tzinfo=UTC),
    message_type="t",
    user_id="u",
    app_id="a",
)


def flags(*bits: int) -> bytes:
    return struct.pack(">H", sum(bits))


def table(name: bytes, kind: bytes, content: bytes) -> bytes:
    return short_text(name) + kind + content


def headers_of(content: bytes) -> LazyHeaders:
    return LazyHeaders(ReceivedProperties(flags(HEADERS) + long_text(content)))


def test_each_property_has_the_value_that_the_library_would_read() -> None:
    received = ReceivedProperties(EVERY_PROPERTY.marshal())

    assert received.error is None
    assert {name: getattr(received, name) for name in Basic.Properties.attributes()} == {
        name: value or (None if name == "cluster_id" else value) for name, value in EVERY_PROPERTY
    }


def test_library_keeps_the_properties_as_bytes() -> None:
    pamqp_patch.install()
    header = ContentHeader()
    raw = flags(TIMESTAMP) + struct.pack(">Q", 2**64 - 1)

    header.unmarshal(struct.pack(">HHQ", 60, 0, 17) + raw)

    assert header.body_size == 17
    assert cast("ReceivedProperties", header.properties).raw == raw


@pytest.mark.parametrize(
    ("number", "time"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_795_738_538, datetime(2026, 11, 27, 0, 15, 38, tzinfo=UTC)),
        (1_795_738_538_000, datetime(2026, 11, 27, 0, 15, 38, tzinfo=UTC)),  # milliseconds
        (MICROSECONDS, MICROSECONDS),  # no year of Python
        (2**63, 2**63),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_time_without_a_date_stays_a_number(number: int, time: object) -> None:
    content = struct.pack(">Q", number)

    assert ReceivedProperties(flags(TIMESTAMP) + content).timestamp == time
    assert headers_of(table(b"at", b"T", content))["at"] == time


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        (b"t", b"\x02", True),
        (b"b", b"\x80", -128),
        (b"B", b"\xff", 255),
        (b"s", b"\x80\x00", -(2**15)),
        (b"U", b"\x80\x00", -(2**15)),
        (b"u", b"\xff\xff", 2**16 - 1),
        (b"I", b"\x80\x00\x00\x00", -(2**31)),
        (b"i", b"\xff\xff\xff\xff", 2**32 - 1),
        (b"l", b"\x80" + 7 * b"\x00", -(2**63)),
        (b"L", b"\x7f" + 7 * b"\xff", 2**63 - 1),
        (b"f", struct.pack(">f", 1.5), 1.5),
        (b"d", struct.pack(">d", 1e308), 1e308),
        (b"D", b"\x02\x00\x00\x01\x2c", Decimal("3.00")),
        (b"D", b"\xff\xff\xff\xff\xff", Decimal(2**32 - 1).scaleb(-255)),
        (b"S", long_text("ключ".encode()), "ключ"),
        (b"S", long_text(b"\xff"), b"\xff"),
        (b"x", long_text(b"text"), b"text"),
        (b"V", b"", None),
        (b"\x00", b"", None),
        (b"A", long_text(b"VV"), [None, None]),
        (b"F", long_text(table(b"in", b"t", b"\x00")), {"in": False}),
    ],
)
def test_value_of_each_kind_is_decoded(kind: bytes, content: bytes, value: object) -> None:
    headers = headers_of(table(b"first", kind, content) + table(b"second", b"V", b""))

    assert dict(headers) == {"first": value, "second": None}
    assert type(headers["first"]) is type(value)


@pytest.mark.parametrize(
    "content", [b"\x05ab", b"\x01aQ1234", b"\x01aI\x00", b"\x01aS\x00\x00\x00\x09a"]
)
def test_headers_that_are_no_table_are_refused_at_each_access(content: bytes) -> None:
    headers = headers_of(content)

    for access in (lambda: headers.get("a"), lambda: len(headers), lambda: list(headers)):
        with pytest.raises(Undecodable) as caught:
            access()
        assert caught.value.reason.startswith("The headers ")


def test_value_must_not_reach_beyond_its_table() -> None:
    inner = table(b"in", b"S", long_text(b"four")[:-1])
    with pytest.raises(Undecodable):
        decode_table(table(b"out", b"F", long_text(inner)) + table(b"next", b"V", b""))


@pytest.mark.parametrize("size", range(len(EVERY_PROPERTY.marshal())))
def test_each_cut_of_a_list_of_properties_is_an_error_or_a_shorter_list(size: int) -> None:
    received = ReceivedProperties(EVERY_PROPERTY.marshal()[:size])

    assert received.error == "The list of properties ends too early."
    with pytest.raises(Undecodable, match="ends too early"):
        LazyHeaders(received).get("a")
    assert received.app_id is None  # the last property


@pytest.mark.parametrize("word", [0b01, 0b10])
def test_flag_without_a_property_is_an_error(word: int) -> None:
    received = ReceivedProperties(flags(word) + b"\x00\x00")

    assert (
        received.error == f"The flags of the properties must be those of AMQP 0-9-1, not {word:#x}."
    )


@pytest.mark.parametrize(("kind", "name"), [(b"F", short_text(b"n")), (b"A", b"")])
def test_deep_nesting_ends_in_bytes(kind: bytes, name: bytes) -> None:
    value = kind + long_text(b"")
    for _ in range(10_000):
        value = kind + long_text(name + value)
    found: Any = headers_of(short_text(b"deep") + value)["deep"]
    depth = 1
    while not isinstance(found, bytes):
        [found] = found.values() if kind == b"F" else found
        depth += 1

    assert depth == MAX_DEPTH


def test_texts_differ_when_their_bytes_differ_and_fit_into_a_property() -> None:
    contents = [bytes([first]) * 255 for first in (0x61, 0x80, 0xFE, 0xFF)] + [b"\xff", b"\\xff"]
    texts = [decoded(content) for content in contents]

    assert len(set(texts)) == len(contents) - 1  # the escape of a byte may occur as a text
    assert all(len(text.encode()) <= MAX_SHORT_TEXT for text in texts)
    assert texts[0] == "a" * 255
    assert texts[4] == r"\xff"


@given(
    st.dictionaries(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1) | st.text() | st.none())
)
def test_headers_that_a_client_encodes_are_decoded_again(headers: dict[str, Any]) -> None:
    assert decode_table(field_table(headers)[4:]) == headers


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    received = ReceivedProperties(raw)
    for name in Basic.Properties.attributes():
        try:
            getattr(received, name)
        except Undecodable:
            assert name == "headers"


def test_attribute_without_a_property_is_an_error() -> None:
    with pytest.raises(AttributeError):
        ReceivedProperties(flags()).unknown  # noqa: B018  # the access
