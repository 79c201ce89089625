"""The CPU of one command of `harebell`, from its start to its exit."""

import asyncio
import os
import sys
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import START_TASK, Rig, Scale

PROCESSES: Final = 10  # of each command in a sample
KEY: Final = "measured"
COMMANDS: Final = (
    ("--version",),
    ("--help",),
    ("schedule", "--help"),
    ("schedule", "list"),
    ("schedule", "get", KEY),
    ("run", "list", "--key", KEY),
    ("why", KEY),
    ("dlq", "list"),
)


async def commands(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure each command in several processes, one after the other."""
    async with rig.tenant() as tenant:
        await tenant.put(KEY, {"every": "1h"}, START_TASK)
        environment = {
            **os.environ,
            "HAREBELL_AMQP_URL": rig.stack.amqp_url,
            "HAREBELL_TENANT": tenant.name,
        }
        for _ in range(scale.times):
            for arguments in COMMANDS:
                times = sorted(
                    [
                        await asyncio.to_thread(cpu_time, arguments, environment)
                        for _ in range(PROCESSES)
                    ]
                )
                report.add(
                    "commands",
                    command=" ".join(arguments),
                    cpu_ms_min=round(times[0] * 1000),
                    cpu_ms_p50=round(median(times) * 1000),
                )


def cpu_time(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    """Return the CPU seconds of one process of the command line, in user and in system mode."""
    program = str(Path(sys.executable).with_name("harebell"))
    no_output = [
        (os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_WRONLY, 0) for descriptor in (1, 2)
    ]
    pid = os.posix_spawn(program, [program, *arguments], environment, file_actions=no_output)
    _, _, usage = os.wait4(pid, 0)
    return usage.ru_utime + usage.ru_stime
