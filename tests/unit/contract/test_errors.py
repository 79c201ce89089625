"""The tree of errors: its branches, its codes and its docstring."""

import inspect
from collections import Counter
from typing import Final

import pytest

from harebell.contract import errors
from harebell.contract.errors import (
    HarebellError,
    InvalidCron,
    InvalidInput,
    Rejected,
    Transient,
    UnknownTimezone,
)
from harebell.contract.responses import error_response

TREE: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, HarebellError)
}


def test_docstring_contains_every_error() -> None:
    assert {name for name in TREE if name not in (errors.__doc__ or "")} == set()


def test_each_error_is_on_one_branch_and_has_a_unique_code() -> None:
    leaves = [kind for kind in TREE.values() if kind is not HarebellError]

    assert all(issubclass(kind, Rejected) != issubclass(kind, Transient) for kind in leaves)
    codes = Counter(kind.code for kind in leaves if "code" in vars(kind))
    assert set(codes.values()) == {1}


@pytest.mark.parametrize(
    ("error", "within", "field", "position"),
    [
        (InvalidInput("no", field="when.at"), "", "when.at", None),
        (InvalidInput("no", field="when.at"), "[3]", "[3].when.at", None),
        (InvalidInput("no"), "[3]", "[3]", None),
        (InvalidInput("no"), "", None, None),
        (InvalidInput("no", field="[2]"), "[3]", "[3][2]", None),
        (InvalidCron("75 * * * *", "no", position=0), "[1]", "[1]", 0),
    ],
)
def test_error_response_contains_the_field_and_the_position(
    error: HarebellError, within: str, field: str | None, position: int | None
) -> None:
    detail = error_response(error, within=within).error

    assert (detail.code, detail.reason) == (error.code, "no")
    assert (detail.field, detail.position) == (field, position)


def test_error_can_have_a_narrower_code_than_its_class() -> None:
    assert InvalidInput("no", code="not_json").code == "not_json"
    assert UnknownTimezone("Mars").code == "unknown_timezone"
    assert "Mars" in UnknownTimezone("Mars").reason
