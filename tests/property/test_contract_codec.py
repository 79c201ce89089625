"""Decoding: any JSON is accepted except integers of more than 64 bits."""

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.contract_values import LARGEST, SMALLEST, json_values, texts

from harebell.contract import json_codec
from harebell.contract.errors import InvalidInput

too_long = st.integers(LARGEST + 1, 10**40) | st.integers(-(10**40), SMALLEST - 1)


@st.composite
def holders(draw: st.DrawFn, planted: st.SearchStrategy[int]) -> Any:
    """Return JSON that contains one planted value."""
    value: Any = draw(planted)
    for _ in range(draw(st.integers(0, 4))):
        others = draw(st.lists(json_values, max_size=2))
        if draw(st.booleans()):
            value = [*others, value]
        else:
            value = {**{f"k{index}": item for index, item in enumerate(others)}, "n": value}
    return value


@given(json_values)
def test_decode_returns_the_encoded_value(value: Any) -> None:
    assert json_codec.decode(orjson.dumps(value)) == value


@given(holders(st.sampled_from([SMALLEST, LARGEST, 10**18, 10**19, -(10**18)])))
def test_decode_keeps_integers_of_64_bits_exactly(value: Any) -> None:
    assert json_codec.decode(json.dumps(value).encode()) == value


@given(holders(too_long))
def test_decode_rejects_integers_of_more_than_64_bits(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        json_codec.decode(json.dumps(value).encode())

    assert caught.value.code == "integer_too_long"


@given(st.integers(20, 60), texts)
def test_decode_accepts_long_digits_in_strings_and_fractions(digits: int, text: str) -> None:
    number = "7" * digits
    value = [number + text, float(f"0.{number}")]
    body = json.dumps([number + text]).encode()[:-1] + f", 0.{number}]".encode()

    assert json_codec.decode(body) == value


@given(st.binary(max_size=40))
def test_decode_raises_only_invalid_input(body: bytes) -> None:
    with suppress(InvalidInput):
        json_codec.decode(body)
