"""The machine, its speed, and the CPU time of processes as the kernel counts it."""

import asyncio
import gc
import os
import platform
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

NOT_OPTIMISED: Final = (
    "The Python interpreter is not an optimised build and needs about 1.6 times the CPU time."
)
ITERATIONS: Final = 100_000  # of a small loop, which measures the speed of the interpreter
MEASUREMENTS: Final = 5
FEW_ITERATIONS: Final = 5_000
WATCH_INTERVAL: Final = 0.1  # seconds
CLOCK_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")  # seconds, the unit of the kernel
_PARENT, _USER, _REAPED_SYSTEM = 1, 11, 14  # fields of `stat` after the name


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time in seconds by the name of the process."""

    seconds: Mapping[str, float]

    @classmethod
    def by(cls, pids: Mapping[str, int]) -> "CpuTime":
        """Return the CPU time of each process with all its descendants."""
        stats = dict(_stats())
        return cls({name: _tree(pid, stats) for name, pid in pids.items()})

    def __sub__(self, before: "CpuTime") -> "CpuTime":
        return CpuTime({name: spent - before.seconds[name] for name, spent in self.seconds.items()})

    def without(self, name: str) -> "CpuTime":
        return CpuTime({each: spent for each, spent in self.seconds.items() if each != name})

    def milliseconds(self, seconds: float) -> dict[str, float]:
        """Return the milliseconds for each second, with their total."""
        each = {name: round(spent / seconds * 1e3, 1) for name, spent in self.seconds.items()}
        return {"total": round(sum(self.seconds.values()) / seconds * 1e3, 1), **each}

    def per(self, count: int) -> dict[str, float]:
        """Return the microseconds for each of `count` runs, with their total."""
        each = {name: round(spent / count * 1e6, 1) for name, spent in self.seconds.items()}
        return {"total": round(sum(self.seconds.values()) / count * 1e6, 1), **each}


@dataclass(slots=True)
class SpeedWatch:
    """Repeated measurements of the time of one loop iteration, in nanoseconds."""

    measurements: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Measure repeatedly until the task is cancelled."""
        while True:
            self.measurements.append(_timed(FEW_ITERATIONS))
            await asyncio.sleep(WATCH_INTERVAL)

    @property
    def median_ns(self) -> float:
        return round(median(self.measurements), 1)


def resident(pid: int) -> int:
    """Return the bytes in RAM of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) * 1024


def describe_machine() -> dict[str, object]:
    """Return the hardware and the interpreter, with a warning if the interpreter is slow."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
        **({} if is_optimised() else {"warning": NOT_OPTIMISED}),
    }


def is_optimised() -> bool:
    """Return whether the interpreter was built with optimisation, as `find_python.sh` decides.

    Distributions optimise their packages below /usr, and Debian removes the flag from sysconfig.
    """
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return "--enable-optimizations" in flags or sys.base_prefix == "/usr"


def iteration_ns() -> float:
    """Return the nanoseconds of CPU for one iteration of a small loop.

    The time differs by half between builds of one Python version, and between times of day on a
    shared machine.
    """
    return round(min(_timed() for _ in range(MEASUREMENTS)), 1)


@contextmanager
def without_collector() -> Iterator[None]:
    """Let the garbage collector of this process rest during the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@asynccontextmanager
async def watch_speed() -> AsyncIterator[SpeedWatch]:
    """Measure the speed of the machine during the block, at a small cost."""
    watch = SpeedWatch()
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()


def _timed(iterations: int = ITERATIONS) -> float:
    began = time.process_time_ns()
    seen = {}
    for iteration in range(iterations):
        seen[iteration & 1023] = (iteration, str(iteration))
    return (time.process_time_ns() - began) / iterations


def _stats() -> Iterator[tuple[int, list[int]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # the process has ended
            continue
        fields = text.rpartition(")")[2].split()
        yield (
            int(folder.name),
            [int(field) if field.lstrip("-").isdigit() else 0 for field in fields],
        )


def _tree(pid: int, stats: Mapping[int, list[int]]) -> float:
    """Return the user and system time of a process, its ended children and its descendants."""
    if pid not in stats:
        return 0.0
    process_seconds = sum(stats[pid][_USER : _REAPED_SYSTEM + 1]) * CLOCK_TICK
    children = [child for child, fields in stats.items() if fields[_PARENT] == pid]
    return process_seconds + sum(_tree(child, stats) for child in children)
