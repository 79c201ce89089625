"""A background loop that fails starts again, in virtual time."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from tests.simulation.loop import virtual_time

from harebell.contract.errors import InvalidInput
from harebell.runtime.retries import RESTART_PAUSE, keep_running


class Loop:
    """A loop that raises its errors at its first starts and then ends its service."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        raise self.errors.pop(0) if self.errors else InvalidInput("The end of the test.")


def test_loop_starts_again_after_a_pause_and_its_failures_are_counted() -> None:
    loop = Loop(RuntimeError("a defect"), KeyError("another"))
    with virtual_time() as events, pytest.raises(InvalidInput):
        events.run_until_complete(keep_running("tested", loop.run))

    first, second, third = loop.starts
    assert (second - first, third - second) == (RESTART_PAUSE, RESTART_PAUSE)
    assert REGISTRY.get_sample_value("harebell_loop_failures_total", {"loop": "tested"}) == 2
