"""Decoding: whatever JSON can say exactly is accepted, integers beyond 64 bits nowhere."""

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
    """Some JSON with one planted value somewhere in it."""
    value: Any = draw(planted)
    for _ in range(draw(st.integers(0, 4))):
        beside = draw(st.lists(json_values, max_size=2))
        if draw(st.booleans()):
            value = [*beside, value]
        else:
            value = {**{f"k{place}": item for place, item in enumerate(beside)}, "n": value}
    return value


@given(json_values)
def test_what_was_written_is_read(value: Any) -> None:
    assert json_codec.decode(orjson.dumps(value)) == value


@given(holders(st.sampled_from([SMALLEST, LARGEST, 10**18, 10**19, -(10**18)])))
def test_integers_of_64_bits_are_read_exactly_wherever_they_stand(value: Any) -> None:
    assert json_codec.decode(json.dumps(value).encode()) == value


@given(holders(too_long))
def test_integers_beyond_64_bits_are_refused_wherever_they_stand(value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        json_codec.decode(json.dumps(value).encode())

    assert refused.value.code == "integer_too_long"


@given(st.integers(20, 60), texts)
def test_long_digits_in_strings_fractions_and_exponents_are_no_integers(
    digits: int, text: str
) -> None:
    written = "7" * digits
    value = [written + text, float(f"0.{written}")]
    body = json.dumps([written + text]).encode()[:-1] + f", 0.{written}]".encode()

    assert json_codec.decode(body) == value


@given(st.binary(max_size=40))
def test_bytes_are_json_or_malformed_and_nothing_else(body: bytes) -> None:
    with suppress(InvalidInput):
        json_codec.decode(body)
