"""The page of walks names each file that its three paths execute, and no other file."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.simulation.services import TASK
from tests.simulation.traced_files import FileRecorder, traced_files
from tests.simulation.users import TENANT, Users

from harebell.contract.ids import schedule_id

PAGE: Final = Path(__file__).parents[2] / "docs" / "architecture" / "walks.md"
LEFT_OUT: Final = ("contract/", "runtime/")
SCHEDULE: Final = schedule_id(TENANT, "key")
START: Final = 5.0  # seconds until all services are ready
RUN: Final = 150.0  # seconds until the run is due, which the stager must plan
# The consumers and loops of a service, which start their work here.
WIRING: Final = {"intake/service.py", "executor/service.py"}

Use = Callable[[Users, FileRecorder], Awaitable[None]]


def definition(after: float) -> dict[str, Any]:
    return {
        "key": "key",
        "when": {"after": f"{after:.0f}s"},
        "target": {"task": {"name": TASK}},
        "retry": {"max_attempts": 1},
    }


async def wait(_: Users, recorder: FileRecorder) -> None:
    await asyncio.sleep(START)
    with recorder.recording():
        await asyncio.sleep(2 * RUN)


async def put(users: Users, recorder: FileRecorder) -> None:
    await asyncio.sleep(START)
    with recorder.recording():
        await users.request("schedule.put", definition(RUN), SCHEDULE)


async def run(users: Users, recorder: FileRecorder) -> None:
    await asyncio.sleep(START)
    await users.request("schedule.put", definition(RUN), SCHEDULE)
    with recorder.recording():
        await asyncio.sleep(RUN + START)


async def replay(users: Users, recorder: FileRecorder) -> None:
    await run(users, recorder)
    [dead_letter] = users.invariants.store.tables[DEAD_LETTERS]
    with recorder.recording():
        response = await users.request("dlq.replay", {"ids": [str(dead_letter)]})
    assert response["results"] == {str(dead_letter): "replayed"}


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
def traces() -> dict[str, tuple[str, ...]]:
    return {
        "idle": traced_files(wait),
        "schedule.put": traced_files(put),
        "One run": traced_files(run),
        "One dead letter": traced_files(replay, permanent=1.0),
    }


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
    traces: dict[str, tuple[str, ...]], walk: str, earlier: tuple[str, ...]
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


def test_files_of_every_message_are_in_the_three_paths(traces: dict[str, tuple[str, ...]]) -> None:
    executed = {each for trace in traces.values() for each in trace}

    assert set(walks()["Every message"]) <= executed
