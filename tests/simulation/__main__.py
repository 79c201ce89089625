"""`python -m tests.simulation --seeds 1000`: worlds full of faults; what breaks one is told.

A seed is the same world, step by step, in every process: `--seed 7 --verbose` shows it.
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.simulation.broken import BROKEN
from tests.simulation.simulate import Report, simulate

HASH_SEED = "0"  # sets are walked in one order, whichever process walks them
TOLD = 30  # last steps of a world that broke


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="of them")
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--verbose", "-v", action="store_true", help="every step")
    parser.add_argument("--broken", choices=sorted(BROKEN), help="with a rule that is broken")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    with BROKEN[chosen.broken]() if chosen.broken else nullcontext():
        return _all(seeds, verbose=chosen.verbose)


def _all(seeds: range, *, verbose: bool) -> int:
    """Until one breaks."""
    began, seen = time.monotonic(), Counter[str]()
    for seed in seeds:
        report = simulate(seed, verbose=verbose)
        if report.violation is not None:
            _tell(report)
            return 1
        seen += report.seen
    took = time.monotonic() - began
    pace = (
        f"{60 * len(seeds) / took:.0f} a minute, {60 * len(seeds) / time.process_time():.0f} of CPU"
    )
    became = ", ".join(f"{count} {state}" for state, count in sorted(seen.items()))
    sys.stdout.write(f"{len(seeds)} worlds held ({pace}): {became}\n")
    return 0


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
    gc.set_threshold(50_000, 20, 100)  # as services do
    sys.exit(main())
