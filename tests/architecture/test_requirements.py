"""Each requirement has a test with its marker, and the page of requirements is current."""

from typing import Final

import pytest
from tests.architecture.source_tree import TESTS, Module, listing, modules_of_tests
from tests.tools.requirements import (
    PAGE,
    common_mark,
    marked_tests,
    markers,
    marks_of_tests,
    quick_tests,
    render,
    requirements,
)

STALE: Final = "Run `python -m tests.tools.requirements` to write the page again."
FEATURES: Final = [f"S{number:02}" for number in range(1, 129)]
USER_REQUESTS: Final = [f"ASK-{number}" for number in range(1, 26)]
PROMISES: Final = [f"P{number}" for number in range(1, 16)]


def test_requirements_are_complete_and_in_order() -> None:
    assert [each.id for each in requirements()] == FEATURES + USER_REQUESTS + PROMISES


def test_page_of_requirements_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(marked_tests()), STALE


def test_page_changes_with_a_marker() -> None:
    assert render({"S01": ("unit/test_a.py::test_a",)}) != render({})


def test_requirement_has_a_test_or_states_what_is_missing() -> None:
    found = marked_tests()
    faults = [
        each.id
        for each in requirements()
        if not (found.get(each.id) or each.benchmarks or each.missing)
    ]

    assert not faults, listing(faults)


def test_requirement_has_a_quick_test_or_a_reason_and_not_both() -> None:
    """`make test` shows each requirement, and a reason for an exception does not become stale."""
    faults = [
        each.id
        for each in requirements()
        if not each.missing and bool(quick_tests(each.id)) == bool(each.long)
    ]

    assert not faults, listing(faults)


def test_marker_names_known_requirements_on_a_test() -> None:
    known = {each.id for each in requirements()}
    faults = [
        f"{module}: {name} {', '.join(ids)}"
        for module in modules_of_tests()
        for name, ids in markers(module)
        if not name.startswith("test_") or not ids or not known.issuperset(ids)
    ]

    assert not faults, listing(faults)


def test_benchmark_of_a_requirement_exists() -> None:
    functions = {
        f"{module.path.relative_to(TESTS)}::{function.name}"
        for module in modules_of_tests()
        for function in module.functions()
    }

    assert {name for each in requirements() for name in each.benchmarks} <= functions


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ('@pytest.mark.requirement("S01", "ASK-2")\ndef test_a(): ...', ["S01", "ASK-2"]),
        ('@pytest.mark.requirement("S01")\n@pytest.mark.asyncio\nasync def test_a(): ...', ["S01"]),
    ],
)
def test_ids_are_read_from_the_marker(source: str, ids: list[str]) -> None:
    assert list(markers(Module(TESTS / "test_a.py", source))) == [("test_a", ids)]


@pytest.mark.parametrize(
    ("source", "marks"),
    [
        ("def test_a(): ...", []),
        ("@pytest.mark.long\ndef test_a(): ...", [("test_a", "**long**")]),
        ("@pytest.mark.long\n@pytest.mark.chaos\ndef test_a(): ...", [("test_a", "**chaos**")]),
        (
            "pytestmark = [pytest.mark.broker, pytest.mark.long]\ndef test_a(): ...",
            [("test_a", "**long**")],
        ),
        (
            "pytestmark = pytest.mark.long\n@pytest.mark.chaos\ndef test_a(): ...",
            [("test_a", "**chaos**")],
        ),
        (
            """A = [pytest.param(1, marks=pytest.mark.long)]
@pytest.mark.parametrize('a', A)
def test_a(a): ...""",
            [("test_a", "*partly long*")],
        ),
        ("pytestmark = pytest.mark.long_ago\ndef test_a(): ...", []),
    ],
)
def test_mark_of_a_test_shows_the_command_that_runs_it(
    source: str, marks: list[tuple[str, str]]
) -> None:
    assert list(marks_of_tests(Module(TESTS / "test_a.py", source))) == marks


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        ({"**long**"}, "**long**"),
        ({"", "**long**"}, ""),
        ({"*partly long*"}, ""),
        ({"**long**", "**chaos**"}, ""),
    ],
)
def test_module_has_the_mark_that_all_its_tests_have(marks: set[str], shown: str) -> None:
    assert common_mark(marks) == shown
