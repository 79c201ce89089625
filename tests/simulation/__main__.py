"""`python -m tests.simulation --seeds 1000`: worlds full of faults; what breaks one is told.

A seed is the same world, step by step, in every process: `--seed 7 --verbose` shows it.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Final

from tests.simulation.mutations import BROKEN
from tests.simulation.simulate import Report, simulate

HASH_SEED: Final = "0"  # sets are walked in one order, whichever process walks them
TOLD: Final = 30  # last steps of a world that broke
HANDED_OUT: Final = 8  # worlds that a worker gets at a time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="of them")
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--verbose", "-v", action="store_true", help="every step of it")
    parser.add_argument("--broken", choices=sorted(BROKEN), help="with a rule that is broken")
    chosen = parser.parse_args()
    one = chosen.seed is not None
    first, number = (chosen.seed, 1) if one else (chosen.first, chosen.seeds)
    seeds, began = range(first, first + number), time.monotonic()
    with BROKEN[chosen.broken]() if chosen.broken else nullcontext():
        if one or chosen.workers == 1:
            reports = map(partial(_world, verbose=chosen.verbose), seeds)
            return _all(reports, seeds, began)
        # forked, so that a broken rule is broken in all
        with multiprocessing.get_context("fork").Pool(chosen.workers) as pool:
            return _all(pool.imap(_world, seeds, HANDED_OUT), seeds, began)


def _world(seed: int, *, verbose: bool = False) -> Report:
    """What the last one left is collected before it, and nothing during it."""
    gc.collect()
    return simulate(seed, verbose=verbose)


def _all(reports: Iterator[Report], seeds: range, began: float) -> int:
    """In order, until one breaks."""
    became, happened, cpu = Counter[str](), Counter[str](), 0.0
    for report in reports:
        if report.violation is not None:
            _tell(report)
            return 1
        became += report.became
        happened += report.happened
        cpu += report.cpu
    pace = len(seeds) * 60 / (time.monotonic() - began)
    dear = 1000 * cpu / len(seeds)
    sys.stdout.write(
        f"{len(seeds)} worlds held: {pace:.0f} a minute, {dear:.0f} ms of CPU each\n"
        f"runs became: {_listed(became, 1)}\n"
        f"in each world: {_listed(happened, len(seeds))}\n"
    )
    return 0


def _listed(counts: Counter[str], among: int) -> str:
    return ", ".join(f"{count / among:.4g} {what}" for what, count in counts.most_common())


def _tell(report: Report) -> None:
    lines = [
        *report.trace[-TOLD:],
        f"seed {report.seed}: {report.violation}",
        f"again: python -m tests.simulation --seed {report.seed} --verbose",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": HASH_SEED})  # noqa: S606
    gc.freeze()
    gc.disable()
    sys.exit(main())
