"""The command `python -m tests.simulation --seeds 1000`, which stops at the first violation.

A seed gives the same scenario, step by step, in every process.
`--seed 7 --verbose` prints these steps.
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

from tests.simulation.mutations import MUTATIONS
from tests.simulation.simulate import Report, simulate

HASH_SEED: Final = "0"  # gives sets the same order in every process
MAX_PRINTED_STEPS: Final = 30  # the last steps of a scenario with a violation
CHUNK: Final = 8  # scenarios that a worker receives at a time


def main() -> int:
    options = parse_options()
    is_single = options.seed is not None
    first, count = (options.seed, 1) if is_single else (options.first, options.seeds)
    seeds, started = range(first, first + count), time.monotonic()
    with MUTATIONS[options.mutation]() if options.mutation else nullcontext():
        if is_single or options.workers == 1:
            reports = map(partial(run_seed, verbose=options.verbose), seeds)
            return print_reports(reports, seeds, started)
        # A forked worker inherits the mutation.
        with multiprocessing.get_context("fork").Pool(options.workers) as pool:
            return print_reports(pool.imap(run_seed, seeds, CHUNK), seeds, started)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    add = parser.add_argument
    add("--seeds", type=int, default=100, help="Number of seeds (default: 100).")
    add("--first", type=int, default=0, help="First seed (default: 0).")
    add("--seed", type=int, help="Only seed to run.")
    workers = os.cpu_count()
    add("--workers", type=int, default=workers, help="Number of processes (default: one per core).")
    add("--verbose", "-v", action="store_true", help="Print every step of the only seed.")
    add("--mutation", choices=sorted(MUTATIONS), help="Rule to break in every scenario.")
    return parser.parse_args()


def run_seed(seed: int, *, verbose: bool = False) -> Report:
    """Simulate a seed. The garbage collector runs before each scenario and never during one."""
    gc.collect()
    return simulate(seed, verbose=verbose)


def print_reports(reports: Iterator[Report], seeds: range, started: float) -> int:
    """Print the figures of all reports, or the first violation."""
    entered_states, counts, cpu = Counter[str](), Counter[str](), 0.0
    for report in reports:
        if report.violation is not None:
            print_violation(report)
            return 1
        entered_states += report.entered_states
        counts += report.counts
        cpu += report.cpu
    per_minute = len(seeds) * 60 / (time.monotonic() - started)
    cpu_ms = 1000 * cpu / len(seeds)
    sys.stdout.write(
        f"{len(seeds)} scenarios passed: {per_minute:.0f} a minute, {cpu_ms:.0f} ms of CPU each\n"
        f"runs entered: {_format(entered_states, 1)}\n"
        f"each scenario had: {_format(counts, len(seeds))}\n"
    )
    return 0


def _format(counts: Counter[str], divisor: int) -> str:
    return ", ".join(f"{count / divisor:.4g} {name}" for name, count in counts.most_common())


def print_violation(report: Report) -> None:
    lines = [
        *report.trace[-MAX_PRINTED_STEPS:],
        f"seed {report.seed}: {report.violation}",
        f"repeat with: python -m tests.simulation --seed {report.seed} --verbose",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": HASH_SEED})  # noqa: S606  # the same program
    gc.freeze()
    gc.disable()
    sys.exit(main())
