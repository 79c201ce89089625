"""Computations of scheduled times: one at a time, the tenants in turn, and a bound of CPU time."""

import asyncio
from threading import Event, current_thread, main_thread

import pytest

from harebell.contract.errors import TooExpensive
from harebell.runtime.computations import Computations, Spend

STEPS = 1_000_000  # of a computation, which need far more CPU time than its bound

pytestmark = pytest.mark.requirement("P6")


async def test_computation_that_used_its_time_is_an_error() -> None:
    def compute(spend: Spend) -> None:
        for _ in range(STEPS):
            spend()

    with pytest.raises(TooExpensive, match=r"scheduled times must need at most 0\.01 s") as raised:
        await Computations(max_cpu=0.01).run(compute)

    assert raised.value.code == "too_expensive"


async def test_computation_runs_beside_the_event_loop() -> None:
    release = Event()

    def compute(_: Spend) -> bool:
        assert release.wait(10)
        return current_thread() is not main_thread()

    computing = asyncio.create_task(Computations(max_cpu=1).run(compute))
    await asyncio.sleep(0)
    release.set()

    assert await computing


async def test_tenants_compute_in_turn() -> None:
    """Each request of the first tenant arrives before the request of the second one."""
    computations, first = Computations(max_cpu=1), Event()
    order: list[str] = []

    async def query(tenant: str) -> None:
        def compute(_: Spend) -> None:
            assert first.wait(10)
            order.append(tenant)

        async with computations.turn(tenant) as turn:
            await turn.run(compute)

    queries = [asyncio.create_task(query(tenant)) for tenant in ["acme"] * 4 + ["umbrella"]]
    await asyncio.sleep(0.01)
    first.set()
    await asyncio.gather(*queries)

    assert order.index("umbrella") == 1
    assert len(order) == len(queries)
