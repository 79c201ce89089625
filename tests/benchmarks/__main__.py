"""`python -m tests.benchmarks`: what a run costs and how late it starts, on servers of its own."""

import argparse
import asyncio
import shutil
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

TIMES: Final = 3  # of each sample


def main() -> None:
    asked = arguments()
    chosen = [name for name in WORKLOADS if name in asked.only] if asked.only else list(WORKLOADS)
    scale = Scale(asked.times, full=asked.full)
    report = Report([], asked.out, Console())
    report.add(MACHINE, **machine.described())
    root = Path(tempfile.mkdtemp(prefix="harebell-bench-"))
    try:
        with (
            Rig.open(root, horizon=FULL_HORIZON if asked.full else HORIZON) as rig,
            ExitStack() as stack,
        ):
            rig.start()
            opening = PEERS.items() if asked.peers else ()
            peers = [stack.enter_context(open_(root / name, rig)) for name, open_ in opening]
            for peer in peers:
                report.add("versions", peer=peer.name, **peer.versions)
            for name in chosen:
                asyncio.run(measure(name, rig, report, scale, peers))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report.console.print(report.table())


async def measure(name: str, rig: Rig, report: Report, scale: Scale, peers: Sequence[Peer]) -> None:
    """With peers, each sample of ours is followed by one of theirs."""
    if not peers or name not in LOADS:
        await WORKLOADS[name](rig, report, scale)
        return
    for _ in range(scale.times):
        await WORKLOADS[name](rig, report, replace(scale, times=1))
        for peer in peers:
            report.add(name, peer=peer.name, **await sample(peer, LOADS[name]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", type=_names, help="stampede,sustained: these, in their own order")
    parser.add_argument("--out", type=Path, help="a file that gets a line of JSON for each sample")
    parser.add_argument("--full", action="store_true", help="all sizes, and the product's horizon")
    parser.add_argument("--peers", action="store_true", help="Celery and BullMQ in turn with ours")
    parser.add_argument("--times", type=int, default=TIMES, help="each sample")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(WORKLOADS)):
        known = ", ".join(WORKLOADS)
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {known}")
    return names


if __name__ == "__main__":
    main()
