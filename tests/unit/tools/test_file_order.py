"""The order of test files by their expected duration."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rig.file_order import (
    SECONDS_OF_START,
    SECONDS_OF_TEST,
    CollectedTest,
    TestSeconds,
    expected_seconds,
    longest_first,
    read_measured,
)


def collected(node_id: str, *fixtures: str) -> CollectedTest:
    return CollectedTest(node_id=node_id, fixtures=frozenset(fixtures))


def report(node_id: str, duration: float) -> Any:
    return SimpleNamespace(nodeid=node_id, duration=duration)


def test_longest_file_is_first_and_keeps_the_order_of_its_tests() -> None:
    tests = [collected(each) for each in ("a.py::one", "a.py::two", "b.py::z", "b.py::a")]

    order = longest_first(tests, {"a.py::one": 1, "a.py::two": 2, "b.py::z": 1, "b.py::a": 60})

    assert [tests[n].node_id for n in order] == ["b.py::z", "b.py::a", "a.py::one", "a.py::two"]


def test_file_with_one_long_test_precedes_a_file_with_many_short_tests() -> None:
    many = [collected(f"many.py::{n}") for n in range(20)]

    order = longest_first([*many, collected("long.py::one")], {"long.py::one": 60.0})

    assert order[0] == len(many)


def test_order_does_not_depend_on_the_order_of_the_collection() -> None:
    tests = [collected(f"{name}.py::test") for name in "cab"]

    files = [tests[n].file for n in longest_first(tests, {})]

    assert files == ["a.py", "b.py", "c.py"]


def test_file_without_a_measurement_costs_its_tests_and_its_starts() -> None:
    tests = [
        collected("own.py::one", "own_stack"),
        collected("own.py::two", "own_stack"),
        collected("shared.py::one", "stack", "tmp_path"),
        collected("shared.py::two", "stack"),
    ]

    assert expected_seconds(tests, {}) == {
        "own.py": 2 * (SECONDS_OF_TEST + SECONDS_OF_START),
        "shared.py": 2 * SECONDS_OF_TEST + SECONDS_OF_START,
    }


def test_new_test_of_a_measured_file_adds_only_its_own_estimate() -> None:
    tests = [collected("a.py::old", "stack"), collected("a.py::new", "stack")]

    assert expected_seconds(tests, {"a.py::old": 30.0}) == {"a.py": 30.0 + SECONDS_OF_TEST}


def test_measurement_adds_the_phases_of_a_test_and_keeps_the_other_tests(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"b.py::kept": 7.0, "a.py::one": 1.0}))
    plugin = TestSeconds(path)

    for duration in (2.0, 0.25, 0.25):
        plugin.pytest_runtest_logreport(report("a.py::one", duration))
    plugin.pytest_sessionfinish(pytest.ExitCode.OK)

    assert read_measured(path) == {"a.py::one": 2.5, "b.py::kept": 7.0}


def test_run_with_a_failure_stores_nothing(tmp_path: Path) -> None:
    plugin = TestSeconds(tmp_path / "seconds.json")
    plugin.pytest_runtest_logreport(report("a.py::one", 2.0))

    plugin.pytest_sessionfinish(pytest.ExitCode.TESTS_FAILED)

    assert read_measured(plugin.path) == {}
