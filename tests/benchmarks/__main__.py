"""The command `python -m tests.benchmarks`: cost and lateness of runs, on separate servers."""

import argparse
import asyncio
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from tests.benchmarks import machine
from tests.benchmarks.figures import MACHINE, Report
from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.peers.sample import LOADS, sample
from tests.benchmarks.rig import FULL_HORIZON, HORIZON, Rig, Scale
from tests.benchmarks.workloads import WORKLOADS

SAMPLES: Final = 3  # of each workload


def main() -> None:
    options = arguments()
    # At an interrupt, the benchmark stops its servers and services.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    chosen = (
        [name for name in WORKLOADS if name in options.only] if options.only else list(WORKLOADS)
    )
    scale = Scale(options.times, full=options.full)
    report = Report([], options.out, Console())
    report.add(MACHINE, **machine.describe_machine())
    root = Path(tempfile.mkdtemp(prefix="harebell-bench-"))
    try:
        with (
            Rig.open(root, horizon=FULL_HORIZON if options.full else HORIZON) as rig,
            ExitStack() as stack,
        ):
            rig.start()
            openers = PEERS.items() if options.peers else ()
            peers = [stack.enter_context(open_(root / name, rig)) for name, open_ in openers]
            for peer in peers:
                report.add("versions", peer=peer.name, **peer.versions)
            for name in chosen:
                asyncio.run(measure(name, rig, report, scale, peers))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report.console.print(report.table())


async def measure(name: str, rig: Rig, report: Report, scale: Scale, peers: Sequence[Peer]) -> None:
    """Measure one workload. A sample of each peer follows each sample of Harebell."""
    if not peers or name not in LOADS:
        await WORKLOADS[name](rig, report, scale)
        return
    for _ in range(scale.times):
        await WORKLOADS[name](rig, report, replace(scale, times=1))
        for peer in peers:
            report.add(name, peer=peer.name, **await sample(peer, LOADS[name]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--only", type=_names, help="Measure only these workloads, such as stampede,sustained."
    )
    parser.add_argument(
        "--out", type=Path, help="Append one line of JSON for each sample to this file."
    )
    parser.add_argument(
        "--full", action="store_true", help="Measure all sizes with the default horizon."
    )
    parser.add_argument("--peers", action="store_true", help="Also measure Celery and BullMQ.")
    parser.add_argument(
        "--times",
        type=int,
        default=SAMPLES,
        help="Number of samples of each workload (default: 3).",
    )
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(WORKLOADS)):
        known = ", ".join(WORKLOADS)
        raise argparse.ArgumentTypeError(
            f"The workloads must be among {known}, not {', '.join(unknown)}."
        )
    return names


if __name__ == "__main__":
    main()
