"""HTTP targets: the lateness of the calls in the process of the target."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.benchmarks import listener
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, start_lateness
from tests.benchmarks.workloads.stampede import measure_costs

RATE: Final = 1_000  # runs a second
SECONDS: Final = 5


async def http(rig: Rig, report: Report, scale: Scale) -> None:
    number = RATE * SECONDS
    for _ in range(scale.times):
        with listener_port(rig) as port:
            target = {"http": {"url": f"http://127.0.0.1:{port}/", "json": {"n": 1}}}
            async with rig.tenant() as tenant:
                wave = await rig.load(tenant, number, rate=RATE, target=target)
                async with measure_costs(rig, wave) as costs:
                    pass
                starts = await rig.started(number)
                report.add(
                    "http", rate=RATE, late_ms=start_lateness(starts), **costs.figures(number)
                )


@contextmanager
def listener_port(rig: Rig) -> Iterator[int]:
    command = [sys.executable, "-I", str(listener.__file__), str(rig.starts / "http")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # ours
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
