"""The files that the services execute for one request of a user."""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.__main__ import RATES
from tests.simulation.loop import PROCESS
from tests.simulation.simulate import simulate
from tests.simulation.users import Users

PACKAGE: Final = "/harebell/"
SEED: Final = 1


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


def traced_files(
    use: Callable[[Users, FileRecorder], Awaitable[None]], **rates: float
) -> tuple[str, ...]:
    """Simulate one user without faults, except for `rates`, and return the recorded files."""
    recorder = FileRecorder()

    async def run(users: Users, _: float) -> None:
        await use(users, recorder)

    with patch.object(Users, "run", run):
        simulate(SEED, fixed_rates=dict.fromkeys(RATES, 0.0) | rates)
    return tuple(recorder.files)
