"""The order of test files: the longest file first, so that no worker runs a long file alone.

`pytest --dist loadfile` gives whole files to its workers. Without `--no-loadscope-reorder`, it
sorts the files by their number of tests, so a file with one test of a minute comes last.
`TEST_SECONDS=1 make test` writes the measured durations to `file_seconds.json`.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

MEASURED: Final = Path(__file__).with_name("file_seconds.json")
FOLDERS: Final = ("tests/acceptance/", "tests/contract/", "tests/integration/")
RECORD: Final = "TEST_SECONDS"  # the environment variable that requests a measurement
SECONDS_OF_A_NEW_FILE: Final = 60.0  # of a file without a measurement, so that it starts early


def longest_first(node_ids: Sequence[str], measured: Mapping[str, float]) -> list[int]:
    """Return the positions of the tests, the longest file first. A file keeps its own order."""

    def place(position: int) -> tuple[float, str, int]:
        file = file_of(node_ids[position])
        return -measured.get(file, SECONDS_OF_A_NEW_FILE), file, position

    return sorted(range(len(node_ids)), key=place)


def file_of(node_id: str) -> str:
    """Return the file of a test: `tests/acceptance/test_top.py` of `<file>::test_a`."""
    return node_id.partition("::")[0]


def read_measured(path: Path = MEASURED) -> dict[str, float]:
    """Return the measured duration of each file [s], and nothing before the first measurement."""
    if not path.exists():
        return {}
    value: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return value


def store(seconds: Mapping[str, float], path: Path = MEASURED) -> None:
    """Store the sum of the durations [s] of these tests for each file in `FOLDERS`."""
    sums = defaultdict[str, float](float)
    for node_id, each in seconds.items():
        if node_id.startswith(FOLDERS):
            sums[file_of(node_id)] += each
    values = read_measured(path) | {file: round(each, 1) for file, each in sums.items()}
    path.write_text(json.dumps(values, indent=0, sort_keys=True) + "\n", encoding="utf-8")
