"""Computations of scheduled times, whose cost no request shows: in turn and bounded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from harebell.contract.errors import TooExpensive
from harebell.runtime.clock import thread_cpu

Result = TypeVar("Result")
Spend = Callable[[], None]  # raises `TooExpensive` when the computation used its CPU time


class Computations:
    """The computations of all tenants, each in a thread, with at most `max_cpu` s of CPU time.

    One computation runs at a time, and a tenant waits for one place at a time.
    The computations of a tenant therefore delay another tenant by one computation each time.
    """

    def __init__(self, *, max_cpu: float) -> None:
        self._max_cpu = max_cpu
        self._running = asyncio.Lock()
        self._tenants: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator["Computations"]:
        """Wait until no other request of the tenant computes, and keep its turn."""
        lock = self._tenants.setdefault(tenant, asyncio.Lock())
        async with lock:
            yield self

    async def run(self, compute: Callable[[Spend], Result]) -> Result:
        """Return the result of `compute` from a thread. The caller has the turn of its tenant.

        `compute` calls its argument before each step, which raises `TooExpensive` after `max_cpu`.
        """
        async with self._running:
            return await asyncio.to_thread(self._compute, compute)

    def _compute(self, compute: Callable[[Spend], Result]) -> Result:
        began = thread_cpu()

        def spend() -> None:
            if thread_cpu() - began > self._max_cpu:
                raise TooExpensive(
                    "The computation of the scheduled times must need at most "
                    f"{self._max_cpu:g} s of CPU time, not more."
                )

        return compute(spend)
