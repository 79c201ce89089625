"""What is measured of a peer, by the names of our own workloads, and in figures like theirs."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.rig import late
from tests.benchmarks.starts import taken
from tests.benchmarks.workloads.accepting import IMMEDIATE
from tests.benchmarks.workloads.waves import LIGHT, LIGHT_FOR, STAMPEDES

AHEAD: Final = 30.0  # seconds in which everything is sent before the first is due
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
    first = began + load.ahead
    await asyncio.to_thread(
        peer.sender.send, load.number, first=first if load.ahead else 0.0, step=load.step
    )
    sent_s = time.time() - began
    assert not load.ahead or sent_s < load.ahead, f"{peer.name}: {sent_s:g} s to send"
    await asyncio.sleep(max(0.0, first - time.time()))
    starts = await taken(peer.starts, load.number)
    await asyncio.sleep(SETTLE)
    spent = peer.spent() - before
    last = starts[-1][1]
    return {
        **load.title,
        "runs_per_s": round(load.number / (last - first)),
        "sent_per_s": round(load.number / sent_s),
        "late_ms": late(starts),
        "cpu_us_per_run": spent.per(load.number),
        "started": len(starts),
    }
