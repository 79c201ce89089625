"""Unit tests of the excerpts of results, and of the headers of an attempt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.attempts import SCHEDULE, attempt

from harebell.executor.targets.attempt import MAX_EXCERPT, excerpt, json_excerpt


@given(st.text(st.characters(exclude_categories=()), max_size=2000))
def test_excerpt_is_short_and_contains_no_nul(text: str) -> None:
    result = excerpt(text * 3)

    assert len(result.encode()) <= MAX_EXCERPT
    assert "\x00" not in result


def test_excerpt_contains_only_whole_characters() -> None:
    assert excerpt("x" + "é" * 1000) == "x" + "é" * 511


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ("\x00", '"\\u0000"'),
        (None, None),
        (0, "0"),
        ({1: "x"}, '{"1":"x"}'),
        (1j, '"1j"'),
        (2**70, "<int>"),
        ("\ud800", "<str>"),
    ],
)
def test_json_excerpt_never_raises(value: object, expected: str | None) -> None:
    assert json_excerpt(value) == expected


def test_json_excerpt_is_the_type_name_when_the_nesting_is_endless() -> None:
    endless: list[object] = []
    endless.append(endless)

    assert json_excerpt(endless) == "<list>"


def test_headers_identify_the_run_and_the_attempt() -> None:
    run_id = f"{SCHEDULE}@20261120T090000000Z"

    assert attempt(number=3, token=7).headers() == {
        "Harebell-Tenant": "default",
        "Harebell-Run-Id": run_id,
        "Harebell-Schedule-Id": str(SCHEDULE),
        "Harebell-Scheduled-For": "2026-11-20T09:00:00Z",
        "Harebell-Attempt": "3",
        "Harebell-Fencing-Token": "7",
        "Idempotency-Key": run_id,
    }


@pytest.mark.requirement("ASK-3")
def test_headers_contain_the_replay_number_only_when_the_run_is_a_replay() -> None:
    first, replayed = attempt().headers(), attempt(replay_number=2).headers()

    assert "Harebell-Replay" not in first
    assert replayed == {**first, "Harebell-Replay": "2"}
