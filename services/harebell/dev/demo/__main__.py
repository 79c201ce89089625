"""`python -m harebell.dev.demo`: the stack, the show, the verdict; the exit code is the verdict."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import TimeoutExpired
from time import monotonic

from rich.console import Console

from harebell.contract.errors import HarebellError
from harebell.dev.demo import commands
from harebell.dev.demo.narration import Narration, farewell
from harebell.dev.demo.schedules import STAMP
from harebell.dev.demo.script import play
from harebell.dev.demo.sources import TargetProcess
from harebell.dev.errors import StackError
from harebell.dev.stack import DEFAULT_ROOT, Stack

GOOD, BAD, INTERRUPTED = 0, 1, 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m harebell.dev.demo")
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, help="the stack's directory")
    root: Path = parser.parse_args().root
    programme = Narration(Console())
    try:
        return show(root, programme)
    except (StackError, HarebellError, TimeoutExpired, OSError) as error:
        programme.say(f"The demo stops: {error}")
        return BAD
    except KeyboardInterrupt:
        programme.say(f"Interrupted; the stack is left as it is, {stop_command(root)} stops it.")
        return INTERRUPTED


def show(root: Path, programme: Narration) -> int:
    commands.require()
    programme.chapter("The stack")
    programme.say(
        "Starting RabbitMQ, PostgreSQL and the five services, where they do not run already."
    )
    begun = monotonic()
    stack = Stack(root, say=programme.say)
    report = stack.start()
    programme.say(f"All are ready after {monotonic() - begun:.1f} s.")
    suffix = f"{datetime.now(UTC):{STAMP}}"
    with TargetProcess.open(stack.root / "logs" / f"demo-{suffix}") as target:
        verdict = asyncio.run(play(report.amqp_url, target, suffix, programme))
    programme.chapter("Verdict")
    programme.say(f"{verdict}: {'good' if verdict.good else 'NOT GOOD'}")
    farewell(programme, report, suffix, stop_command(root))
    return GOOD if verdict.good else BAD


def stop_command(root: Path) -> str:
    if root == DEFAULT_ROOT:
        return "make down"
    return commands.shown("dev", "stop", "--root", str(root))


if __name__ == "__main__":
    sys.exit(main())
