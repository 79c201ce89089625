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
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Final

from tests.simulation.fault_rates import DIRECTED_RATES, EFFECT_RATES, MAX_RATES
from tests.simulation.mutations import MUTATIONS
from tests.simulation.simulate import Report, simulate

HASH_SEED: Final = "0"  # gives sets the same order in every process
MAX_PRINTED_STEPS: Final = 30  # the last steps of a scenario with a violation
RATES: Final = (*MAX_RATES, *EFFECT_RATES, *DIRECTED_RATES)
CHUNK: Final = 8  # scenarios that a worker receives at a time


def main() -> int:
    options = parse_options()
    is_single = options.seed is not None
    first, count = (options.seed, 1) if is_single else (options.first, options.seeds)
    seeds, started = range(first, first + count), time.monotonic()
    run = partial(run_seed, fixed_rates=options.rates)
    with MUTATIONS[options.mutation]() if options.mutation else nullcontext():
        if is_single or options.workers == 1:
            reports = map(partial(run, verbose=options.verbose), seeds)
            return print_reports(reports, seeds, started, expected=options.expect)
        # A forked worker inherits the mutation.
        with multiprocessing.get_context("fork").Pool(options.workers) as pool:
            found = pool.imap(run, seeds, CHUNK)
            return print_reports(found, seeds, started, expected=options.expect)


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
    rates = f"Rates of faults, such as frozen=0.03: {', '.join(RATES)}."
    add("--rates", type=parse_rates, default={}, help=rates)
    add("--expect", default="", help="Text of the only violation that ends the search.")
    return parser.parse_args()


def parse_rates(text: str) -> dict[str, float]:
    """Return the rates of a text such as `lost=0.1,frozen=0.03`. Raise `ValueError`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    rates = {kind: float(rate) for kind, _, rate in pairs}
    if unknown := sorted(rates.keys() - set(RATES)):
        raise ValueError(f"The fault must be one of {', '.join(RATES)}, not {unknown[0]}.")
    return rates


def run_seed(
    seed: int, *, verbose: bool = False, fixed_rates: Mapping[str, float] | None = None
) -> Report:
    """Simulate a seed. The garbage collector runs before each scenario and never during one."""
    gc.collect()
    return simulate(seed, verbose=verbose, fixed_rates=fixed_rates)


def print_reports(
    reports: Iterator[Report], seeds: range, started: float, *, expected: str = ""
) -> int:
    """Print the figures of all reports, or the first violation with the expected text."""
    entered_states, counts, cpu = Counter[str](), Counter[str](), 0.0
    for report in reports:
        if report.violation is not None and expected in report.violation:
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
