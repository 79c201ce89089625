"""The order of test files: the longest file first, so that no worker runs a long file alone.

`pytest --dist loadfile` gives whole files to its workers. Without `--no-loadscope-reorder`, it
sorts the files by their number of tests, so a file with one test of a minute comes last.
`TEST_SECONDS=1 make test` writes the measured durations to `test_seconds.json`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEASURED: Final = Path(__file__).with_name("test_seconds.json")
FOLDERS: Final = ("tests/acceptance/", "tests/contract/", "tests/integration/")
RECORD: Final = "TEST_SECONDS"  # the environment variable that requests a measurement
# A test without a measurement has these costs. Each of these fixtures starts servers or services.
SECONDS_OF_TEST: Final = 1.5
SECONDS_OF_START: Final = 10.0
STARTS_FOR_EACH_TEST: Final = frozenset({"own_stack"})
STARTS_FOR_EACH_FILE: Final = frozenset(
    {
        "broken_stack",
        "clustered",
        "counted_stack",
        "installation",
        "own_servers",
        "page_stack",
        "pair",
        "pooler",
        "production",
        "rolling_stack",
        "stack",
        "tls",
        "traced_stack",
    }
)


@dataclass(frozen=True, kw_only=True)
class CollectedTest:
    """The node id of a test, such as `tests/acceptance/test_top.py::test_a`, and its fixtures."""

    node_id: str
    fixtures: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        return self.node_id.partition("::")[0]


def expected_seconds(
    tests: Iterable[CollectedTest], measured: Mapping[str, float]
) -> dict[str, float]:
    """Return the expected duration of each file [s]: as measured, or else from its fixtures."""
    seconds = defaultdict[str, float](float)
    shared = defaultdict[str, set[str]](set)
    files = {node_id.partition("::")[0] for node_id in measured}
    for test in tests:
        starts = len(test.fixtures & STARTS_FOR_EACH_TEST)
        estimate = SECONDS_OF_TEST + starts * SECONDS_OF_START
        seconds[test.file] += measured.get(test.node_id, estimate)
        shared[test.file] |= test.fixtures & STARTS_FOR_EACH_FILE
    for file, fixtures in shared.items():
        if file not in files:  # a measurement contains the set-up of the fixtures
            seconds[file] += len(fixtures) * SECONDS_OF_START
    return seconds


def longest_first(tests: Sequence[CollectedTest], measured: Mapping[str, float]) -> list[int]:
    """Return the positions of the tests, the longest file first. A file keeps its own order."""
    seconds = expected_seconds(tests, measured)
    return sorted(range(len(tests)), key=lambda n: (-seconds[tests[n].file], tests[n].file, n))


def read_measured(path: Path = MEASURED) -> dict[str, float]:
    """Return the measured duration of each test [s], and nothing before the first measurement."""
    if not path.exists():
        return {}
    value: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return value


def store(seconds: Mapping[str, float], path: Path = MEASURED) -> None:
    """Store the durations of these tests. Other tests keep their durations."""
    values = read_measured(path)
    values |= {test: round(each, 1) for test, each in seconds.items() if test.startswith(FOLDERS)}
    path.write_text(json.dumps(values, indent=0, sort_keys=True) + "\n", encoding="utf-8")
