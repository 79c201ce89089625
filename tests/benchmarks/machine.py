"""What the machine is, and how much CPU processes have spent, as the kernel counts it."""

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

TURNS: Final = 100_000  # of a small loop, that tell how fast an interpreter is
TRIES: Final = 5
FEW_TURNS: Final = 5_000
LOOK_EVERY: Final = 0.1  # seconds
TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds; what the kernel counts in
_PARENT, _USER, _REAPED_SYSTEM = 1, 11, 14  # fields of stat behind the name


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of CPU by the name of who spent them."""

    seconds: Mapping[str, float]

    @classmethod
    def by(cls, pids: Mapping[str, int]) -> "Spent":
        """Each with its descendants, those that have ended too."""
        stats = dict(_stats())
        return cls({name: _tree(pid, stats) for name, pid in pids.items()})

    def __sub__(self, before: "Spent") -> "Spent":
        return Spent({name: it - before.seconds[name] for name, it in self.seconds.items()})

    def milliseconds(self, seconds: float) -> dict[str, float]:
        """Of each second, and their total."""
        each = {name: round(it / seconds * 1e3, 1) for name, it in self.seconds.items()}
        return {"total": round(sum(self.seconds.values()) / seconds * 1e3, 1), **each}

    def per(self, count: int) -> dict[str, float]:
        """Microseconds, and their total."""
        each = {name: round(it / count * 1e6, 1) for name, it in self.seconds.items()}
        return {"total": round(sum(self.seconds.values()) / count * 1e6, 1), **each}


@dataclass(slots=True)
class Watch:
    """What a turn took at each look, in nanoseconds."""

    looks: list[float] = field(default_factory=list)

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            self.looks.append(_timed(FEW_TURNS))
            await asyncio.sleep(LOOK_EVERY)

    @property
    def mean_ns(self) -> float:
        return round(fmean(self.looks), 1)


def resident(pid: int) -> int:
    """Bytes in RAM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = dict(line.split(":", 1) for line in lines)
    return int(told["VmRSS"].split()[0]) * 1024


def described() -> dict[str, object]:
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
    }


def turn_ns() -> float:
    """Nanoseconds of CPU for one turn of a small loop: builds of one version differ by half.

    So do a shared machine's hours.
    """
    return round(min(_timed() for _ in range(TRIES)), 1)


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Looks meanwhile how fast the machine is, at small cost."""
    watch = Watch()
    task = asyncio.create_task(watch.keep())
    try:
        yield watch
    finally:
        task.cancel()


def _timed(turns: int = TURNS) -> float:
    began = time.process_time_ns()
    seen = {}
    for turn in range(turns):
        seen[turn & 1023] = (turn, str(turn))
    return (time.process_time_ns() - began) / turns


def _stats() -> Iterator[tuple[int, list[int]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        fields = text.rpartition(")")[2].split()
        yield (
            int(folder.name),
            [int(field) if field.lstrip("-").isdigit() else 0 for field in fields],
        )


def _tree(pid: int, stats: Mapping[int, list[int]]) -> float:
    """User and system time, its own and that of children it has waited for, and the living's."""
    if pid not in stats:
        return 0.0
    own = sum(stats[pid][_USER : _REAPED_SYSTEM + 1]) * TICK
    children = [child for child, fields in stats.items() if fields[_PARENT] == pid]
    return own + sum(_tree(child, stats) for child in children)
