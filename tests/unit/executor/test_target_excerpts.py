"""What is kept of an answer can be stored, and is small."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.attempts import SCHEDULE, attempt

from harebell.executor.targets.attempt import MAX_EXCERPT, excerpt, json_excerpt


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=2000))
def test_an_excerpt_is_short_and_storable(text: str) -> None:
    kept = excerpt(text * 3)

    assert len(kept.encode()) <= MAX_EXCERPT
    assert "\x00" not in kept


def test_a_character_is_not_cut_in_two() -> None:
    assert excerpt("x" + "é" * 1000) == "x" + "é" * 511


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[({"a": [1, None]}, '{"a":[1,null]}'), ("\x00", '"\\u0000"'), (None, None), (0, "0")],
        *[({1: "x"}, '{"1":"x"}'), (1j, '"1j"'), (2**70, "<int>"), ("\ud800", "<str>")],
    ],
)
def test_a_result_as_json(value: object, expected: str | None) -> None:
    assert json_excerpt(value) == expected


def test_a_result_without_end_does_not_turn_success_into_failure() -> None:
    endless: list[object] = []
    endless.append(endless)

    assert json_excerpt(endless) == "<list>"


def test_what_a_target_is_told() -> None:
    run_id = f"{SCHEDULE}@20261120T090000000Z"

    assert attempt(number=3, token=7).headers() == {
        "Harebell-Run-Id": run_id,
        "Harebell-Schedule-Id": str(SCHEDULE),
        "Harebell-Scheduled-For": "2026-11-20T09:00:00Z",
        "Harebell-Attempt": "3",
        "Harebell-Fencing-Token": "7",
        "Idempotency-Key": run_id,
    }
