"""`python -m tests.chaos --seeds 3`: breaks a stack of its own in every way and judges it."""

import argparse
import logging
import shutil
import tempfile
from pathlib import Path

from tests.chaos.faults import chosen, listed
from tests.chaos.history import duration
from tests.chaos.result import say
from tests.chaos.run import Plan, Report, mixed, perform, single
from tests.chaos.soak import Soak


def main() -> int:
    asked = arguments()
    if asked.list:
        for each in listed():
            say(f"{each.row:4} {each.title}")
        return 0
    first = 1 if asked.seed is None else asked.seed
    seeds = range(first, first + asked.seeds)
    draw = single if asked.rows else mixed
    faults = chosen(asked.rows)
    outage = duration(asked.outage).total_seconds()
    plan = Plan([draw(seed, faults) for seed in seeds], outage)
    if asked.soak:
        lasting, every = (duration(each).total_seconds() for each in (asked.soak, asked.every))
        plan = Plan([[Soak.of(first, faults, lasting, every)]], outage)
    say(f"{plan.waves} waves of {len(plan.seeds)} seeds, about {plan.seconds / 60:.0f} minutes")
    for library in ("aiormq", "aio_pika"):  # they tell of every connection that they do not get
        logging.getLogger(library).setLevel(logging.CRITICAL)
    report = Report(Path(asked.out) if asked.out else None)
    root = Path(asked.root or tempfile.mkdtemp(prefix="harebell-chaos-"))
    if root.exists() and any(root.iterdir()):
        raise SystemExit(f"{root} is not empty: an older run's calls would be judged as this one's")
    perform(plan, root, report)
    say(f"{report.broken} of {len(report.verdicts)} waves broke a promise")
    if not report.broken and not asked.root:
        shutil.rmtree(root)
    return 1 if report.broken else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, help="the first; 1")
    parser.add_argument("--rows", default="", help="6,10b: all of these, one after the other")
    parser.add_argument("--outage", default="5s", help="how long each fault lasts")
    parser.add_argument("--soak", help="30m: one long load instead, judged in the end")
    parser.add_argument("--every", default="30s", help="how often a fault strikes in a soak")
    parser.add_argument("--out", help="a file that gets a line of JSON for each wave")
    parser.add_argument("--root", help="where everything is kept")
    parser.add_argument("--list", action="store_true", help="the rows there are")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
