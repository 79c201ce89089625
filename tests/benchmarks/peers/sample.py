"""What is measured of a peer, by the names of our own workloads, and in figures like theirs."""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.rig import late
from tests.benchmarks.starts import taken
from tests.benchmarks.workloads.accept import IMMEDIATE
from tests.benchmarks.workloads.stampede import BEFORE, LIGHT, LIGHT_FOR, STAMPEDES

AHEAD: Final = 30.0  # seconds in which everything is sent before the first is due
WINDOW: Final = BEFORE.total_seconds()  # before the first is due
SETTLE: Final = 1.0  # seconds from the last start to its acknowledgement, which is counted too


@dataclass(frozen=True)
class Load:
    """`ahead`: seconds from sending to the first instant; 0: due when it is sent."""

    number: int
    ahead: float = AHEAD
    rate: int | None = None  # runs a second; else all at one instant

    @property
    def title(self) -> dict[str, int]:
        return {"n": self.number} if self.rate is None else {"rate": self.rate}

    @property
    def step(self) -> float:
        return 0.0 if self.rate is None else 1 / self.rate


LOADS: Final[Mapping[str, Load]] = {
    "light": Load(LIGHT * LIGHT_FOR, rate=LIGHT),
    "stampede": Load(STAMPEDES[0]),
    "immediate": Load(IMMEDIATE, ahead=0.0),
}


async def sample(peer: Peer, load: Load) -> dict[str, Any]:
    before, began = peer.spent(), time.time()
    first = math.floor(began + load.ahead) if load.ahead else 0
    await asyncio.to_thread(peer.sender.send, load.number, first=first, step=load.step)
    sent_at = time.time()
    if first:
        assert sent_at < first - WINDOW, f"{peer.name} took {sent_at - began:g} s to send"
        await asyncio.sleep(first - WINDOW - sent_at)
    begun = peer.spent()
    starts = await taken(peer.starts, load.number)
    await asyncio.sleep(SETTLE)
    after = peer.spent()
    window = {"window_us_per_run": (after - begun).per(load.number)} if first else {}
    return {
        **load.title,
        "runs_per_s": round(load.number / (starts[-1][1] - (first or began))),
        "sent_per_s": round(load.number / (sent_at - began)),
        "late_ms": late(starts),
        "cpu_us_per_run": (after - before).per(load.number),
        **window,
        "started": len(starts),
    }
