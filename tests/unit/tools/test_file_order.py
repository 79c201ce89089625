"""The order of test files by their expected duration."""

import json
from pathlib import Path

from tests.rig.file_order import (
    FOLDERS,
    SECONDS_OF_A_NEW_FILE,
    longest_first,
    read_measured,
    store,
)


def test_longest_file_is_first_and_keeps_the_order_of_its_tests() -> None:
    tests = ["a.py::one", "a.py::two", "b.py::z", "b.py::a"]

    order = longest_first(tests, {"a.py": 3, "b.py": 61})

    assert [tests[n] for n in order] == ["b.py::z", "b.py::a", "a.py::one", "a.py::two"]


def test_order_does_not_depend_on_the_order_of_the_collection() -> None:
    tests = ["c.py::test", "a.py::test", "b.py::test"]

    assert [tests[n] for n in longest_first(tests, {})] == sorted(tests)


def test_file_without_a_measurement_precedes_all_but_the_longest_files() -> None:
    tests = ["short.py::test", "long.py::test", "new.py::test"]
    measured = {"short.py": SECONDS_OF_A_NEW_FILE - 1, "long.py": SECONDS_OF_A_NEW_FILE + 1}

    assert longest_first(tests, measured) == [1, 2, 0]


def test_measurement_adds_the_tests_of_a_file_and_keeps_the_other_files(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    kept, changed = f"{FOLDERS[0]}b.py", f"{FOLDERS[1]}a.py"
    path.write_text(json.dumps({kept: 7.0, changed: 1.0}))

    store({f"{changed}::one": 2.52, f"{changed}::two": 1.0, "tests/unit/c.py::quick": 1.0}, path)

    assert read_measured(path) == {changed: 3.5, kept: 7.0}
