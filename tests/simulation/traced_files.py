"""The executed files of each path, which `python -m tests.simulation.traced_files` prints."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.simulation.__main__ import RATES
from tests.simulation.loop import PROCESS
from tests.simulation.services import TASK
from tests.simulation.simulate import simulate
from tests.simulation.users import TENANT, Users

from harebell.contract.ids import schedule_id

PACKAGE: Final = "/harebell/"
SEED: Final = 1
SCHEDULE: Final = schedule_id(TENANT, "key")
START: Final = 5.0  # seconds until all services are ready
RUN: Final = 150.0  # seconds until the run is due, which the stager must plan


class FileRecorder:
    """Records the files whose functions a service calls, in the order of their first calls."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}  # an ordered set

    @contextmanager
    def recording(self) -> Generator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        _, is_product, name = frame.f_code.co_filename.rpartition(PACKAGE)
        if event == "call" and is_product and PROCESS.get() is not None:
            self.files.setdefault(name)


Use = Callable[[Users, FileRecorder], Awaitable[None]]


def traced_files(use: Use, **rates: float) -> list[str]:
    """Simulate one user without faults, except for `rates`, and return the recorded files."""
    recorder = FileRecorder()

    async def run(users: Users, _: float) -> None:
        await use(users, recorder)

    with patch.object(Users, "run", run):
        simulate(SEED, fixed_rates=dict.fromkeys(RATES, 0.0) | rates)
    return [*recorder.files]


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
    await asyncio.sleep(START)  # the ticker publishes its events after the response
    with recorder.recording():
        await asyncio.sleep(RUN)


async def replay(users: Users, recorder: FileRecorder) -> None:
    await run(users, recorder)
    [dead_letter] = users.invariants.store.tables[DEAD_LETTERS]
    with recorder.recording():
        response = await users.request("dlq.replay", {"ids": [str(dead_letter)]})
    assert response["results"] == {str(dead_letter): "replayed"}


if __name__ == "__main__":
    traces = {
        "idle": traced_files(wait),
        "schedule.put": traced_files(put),
        "One run": traced_files(run),
        "One dead letter": traced_files(replay, permanent=1.0),
    }
    sys.stdout.write(json.dumps(traces))
