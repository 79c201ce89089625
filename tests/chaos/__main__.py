"""The command `python -m tests.chaos --seeds 3`, which breaks a private stack and checks it."""

import argparse
import logging
import shutil
import tempfile
from pathlib import Path

from tests.chaos.faults import all_faults, select_faults
from tests.chaos.history import duration
from tests.chaos.result import print_line
from tests.chaos.run import ChaosPlan, Report, mixed_rounds, run_plan, single_rounds
from tests.chaos.soak import Soak


def main() -> int:
    options = parse_options()
    if options.list:
        for fault in all_faults():
            print_line(f"{fault.row:4} {fault.title}")
        return 0
    plan = plan_of(options)
    minutes = plan.seconds / 60
    seeds = len(plan.seeds)
    print_line(f"{plan.round_count} rounds of {seeds} seeds, about {minutes:.0f} minutes")
    for library in ("aiormq", "aio_pika"):  # they log every connection that fails
        logging.getLogger(library).setLevel(logging.CRITICAL)
    report = Report(Path(options.out) if options.out else None)
    root = Path(options.root or tempfile.mkdtemp(prefix="harebell-chaos-"))
    if root.exists() and any(root.iterdir()):
        reason = "the checker would count the calls of an earlier run"
        raise SystemExit(f"The folder {root} must be empty: {reason}.")
    run_plan(plan, root, report)
    print_line(f"{report.broken} of {len(report.results)} rounds broke a promise")
    if not report.broken and not options.root:
        shutil.rmtree(root)
    return 1 if report.broken else 0


def plan_of(options: argparse.Namespace) -> ChaosPlan:
    first = 1 if options.seed is None else options.seed
    faults = select_faults(options.rows)
    outage = duration(options.outage).total_seconds()
    if options.soak:
        length, interval = (duration(each) for each in (options.soak, options.every))
        soak = Soak.create(
            first,
            faults,
            duration=length.total_seconds(),
            interval=interval.total_seconds(),
        )
        return ChaosPlan([[soak]], outage)
    rounds_of = single_rounds if options.rows else mixed_rounds
    seeds = range(first, first + options.seeds)
    return ChaosPlan([rounds_of(seed, faults) for seed in seeds], outage)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=1, help="Number of seeds.")
    add("--seed", type=int, help="First seed (default: 1).")
    add("--rows", default="", help="Rows to run one after the other, such as 6,10b.")
    add("--outage", default="5s", help="Duration of each fault (default: 5s).")
    add("--soak", help="Duration of one long load with one check at its end, such as 30m.")
    add("--every", default="30s", help="Interval between two faults of a soak (default: 30s).")
    add("--out", help="File that receives a line of JSON for each round.")
    add("--root", help="Empty folder for all files.")
    add("--list", action="store_true", help="Print all rows.")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
