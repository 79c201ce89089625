"""The order of test files by their expected duration."""

import json
from pathlib import Path

from tests.rig.file_order import (
    FOLDERS,
    SECONDS_OF_START,
    SECONDS_OF_TEST,
    CollectedTest,
    expected_seconds,
    longest_first,
    read_measured,
    store,
)


def collected(node_id: str, *fixtures: str) -> CollectedTest:
    return CollectedTest(node_id=node_id, fixtures=frozenset(fixtures))


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


def test_measurement_keeps_the_other_tests_and_no_test_without_services(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    kept, one = f"{FOLDERS[0]}b.py::kept", f"{FOLDERS[1]}a.py::one"
    path.write_text(json.dumps({kept: 7.0, one: 1.0}))

    store({one: 2.52, "tests/unit/c.py::quick": 1.0}, path)

    assert read_measured(path) == {one: 2.5, kept: 7.0}
