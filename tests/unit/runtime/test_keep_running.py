"""A background loop that fails starts again, in virtual time."""

import asyncio
from itertools import pairwise

import pytest
from prometheus_client import REGISTRY
from tests.simulation.loop import virtual_time

from harebell.contract.errors import InvalidInput
from harebell.runtime.retries import RESTART_PAUSE, WriteConflict, keep_running


class Loop:
    """A loop that raises its errors at its first starts, and is cancelled then."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        raise self.errors.pop(0) if self.errors else asyncio.CancelledError


def test_loop_starts_again_after_a_pause_and_its_failures_are_counted() -> None:
    errors = [RuntimeError("a defect"), InvalidInput("a bad row"), WriteConflict("a row exists")]
    loop = Loop(*errors)

    with virtual_time() as events, pytest.raises(asyncio.CancelledError):
        events.run_until_complete(keep_running("tested", loop.run))

    pauses = [later - earlier for earlier, later in pairwise(loop.starts)]
    assert pauses == [RESTART_PAUSE] * 3
    assert REGISTRY.get_sample_value("harebell_loop_failures_total", {"loop": "tested"}) == 3


def test_loop_without_a_failure_has_a_series() -> None:
    with virtual_time() as events, pytest.raises(asyncio.CancelledError):
        events.run_until_complete(keep_running("sound", Loop().run))

    assert REGISTRY.get_sample_value("harebell_loop_failures_total", {"loop": "sound"}) == 0
