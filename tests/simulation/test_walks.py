"""The page of walks names each file that its three paths execute, and no other file."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "architecture" / "walks.md"
LEFT_OUT: Final = ("contract/", "runtime/")
# The consumers and loops of a service, which start their work here.
WIRING: Final = {"intake/service.py", "executor/service.py"}


def walks() -> dict[str, list[str]]:
    """Return the files of each section of the page, in order."""
    _, *sections = PAGE.read_text().split("\n## ")
    return {
        section.partition("\n")[0].strip("`"): re.findall(
            r"^(?:-|\d+\.) `(\S+)`:", section, re.MULTILINE
        )
        for section in sections
    }


@pytest.fixture(scope="module")
def traces() -> dict[str, list[str]]:
    """Return the executed files of each path, from a process of their own as in `test_faults`."""
    command = [sys.executable, "-m", "tests.simulation.traced_files"]
    done = subprocess.run(  # noqa: S603  # a constant
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


# A dead letter continues a run, and its replay begins as a put does.
@pytest.mark.parametrize(
    ("walk", "earlier"),
    [
        pytest.param("schedule.put", (), id="put"),
        pytest.param("One run", (), id="run"),
        pytest.param("One dead letter", ("One run", "schedule.put"), id="dead letter"),
    ],
)
def test_walk_names_each_file_of_its_path(
    traces: dict[str, list[str]], walk: str, earlier: tuple[str, ...]
) -> None:
    pages, traced = walks(), traces[walk]
    listed = pages[walk]
    known = {*traces["idle"], *pages["Every message"], *WIRING}
    known.update(*(traces[each] for each in earlier))
    required = [each for each in traced if each not in known and not each.startswith(LEFT_OUT)]

    assert required
    assert not set(required) - set(listed)
    assert [each for each in listed if each in required] == required
    assert not set(listed) - set(traced)
    assert len(listed) == len(set(listed))


def test_files_of_every_message_are_in_the_three_paths(traces: dict[str, list[str]]) -> None:
    executed = {each for trace in traces.values() for each in trace}

    assert set(walks()["Every message"]) <= executed
