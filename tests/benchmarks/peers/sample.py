"""The samples of a peer, with the workload names and the figures of Harebell."""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.machine import CpuTime
from tests.benchmarks.peers.peer import BULK, PRODUCER, SINGLE, Peer
from tests.benchmarks.rig import start_lateness
from tests.benchmarks.starts import take_starts
from tests.benchmarks.workloads.accept import IMMEDIATE
from tests.benchmarks.workloads.stampede import LIGHT_DURATION, LIGHT_RATE, STAMPEDES, WINDOW_START

SEND_TIME: Final = 30.0  # seconds to send all runs before the first is due
WINDOW: Final = WINDOW_START.total_seconds()  # seconds before the first due time
ACKNOWLEDGE_TIME: Final = (
    1.0  # seconds after the last start, so that the CPU time includes its acknowledgement
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """A load. `ahead` is the time from sending to the first due time, or 0 for immediate runs."""

    number: int
    ahead: float = SEND_TIME
    rate: int | None = None  # runs a second; None for one due time
    mode: str = BULK

    @property
    def title(self) -> dict[str, int]:
        return {"n": self.number} if self.rate is None else {"rate": self.rate}

    @property
    def step(self) -> float:
        return 0.0 if self.rate is None else 1 / self.rate


# `immediate` has one message or call for each run. The CPU time of a sender is left out if its runs
# are due when sent, as that of Harebell's is.
LOADS: Final[Mapping[str, Load]] = {
    "light": Load(number=LIGHT_RATE * LIGHT_DURATION, rate=LIGHT_RATE),
    "stampede": Load(number=STAMPEDES[0]),
    "immediate": Load(number=IMMEDIATE, ahead=0.0, mode=SINGLE),
    "immediate-bulk": Load(number=IMMEDIATE, ahead=0.0),
}


async def sample(peer: Peer, load: Load) -> dict[str, Any]:
    def spent() -> CpuTime:
        everything = peer.spent()
        return everything if load.ahead else everything.without(PRODUCER)

    before, started_at = spent(), time.time()
    first = math.floor(started_at + load.ahead) if load.ahead else 0
    await asyncio.to_thread(
        peer.sender.send, load.number, first=first, step=load.step, mode=load.mode
    )
    sent_at = time.time()
    if first:
        assert sent_at < first - WINDOW, f"{peer.name} took {sent_at - started_at:g} s to send"
        await asyncio.sleep(first - WINDOW - sent_at)
    at_window = spent()
    starts = await take_starts(peer.starts, load.number)
    await asyncio.sleep(ACKNOWLEDGE_TIME)
    after = spent()
    window = {"window_us_per_run": (after - at_window).per(load.number)} if first else {}
    return {
        **load.title,
        "runs_per_s": round(load.number / (starts[-1][1] - (first or started_at))),
        "sent_per_s": round(load.number / (sent_at - started_at)),
        "late_ms": start_lateness(starts),
        "cpu_us_per_run": (after - before).per(load.number),
        **window,
        "started": len(starts),
    }
