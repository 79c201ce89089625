"""The command `make mutants`, which reports the mutants that no test notices."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutant import load_mutants, select
from tests.mutants.runner import Result, counts, run_mutants

ROOT: Final = Path(__file__).parents[2]


def main() -> int:
    options = parse_options()
    try:
        mutants = select(load_mutants(), [each for each in options.only.split(",") if each])
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.list:
        for mutant in mutants:
            print(f"{mutant.topic}: {mutant.name} ({mutant.file})")  # noqa: T201  # the output
        return 0
    began = time.monotonic()
    print(f"The tests of {len(mutants)} mutants run without a mutant first.", flush=True)  # noqa: T201  # the output
    results = run_mutants(mutants, ROOT, jobs=options.jobs, on_result=print_result)
    print_summary(results, time.monotonic() - began)
    return 0 if all(result.verdict.is_good for result in results) else 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    add = parser.add_argument
    add("--only", default="", help="Topics, separated by commas (default: all topics).")
    add("--jobs", type=int, default=2, help="Number of mutants at a time (default: 2).")
    add("--list", action="store_true", help="Print the mutants and run no test.")
    return parser.parse_args()


def print_result(result: Result) -> None:
    mutant = result.mutant
    line = f"{result.verdict:<10} {result.seconds:5.1f} s  {mutant.topic}: {mutant.name}"
    if not result.verdict.is_good:
        line += f"\n           {mutant.file}: {mutant.find.strip()} -> {mutant.replace.strip()}"
        line += f"\n           {result.reason}"
    print(line, flush=True)  # noqa: T201  # the output


def print_summary(results: Sequence[Result], seconds: float) -> None:
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts(results).items())
    print(f"{len(results)} mutants in {seconds / 60:.1f} min: {parts}")  # noqa: T201  # the output


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT for background jobs
        signal.signal(number, _interrupt)
    sys.exit(main())
