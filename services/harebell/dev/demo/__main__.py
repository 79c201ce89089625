"""`python -m harebell.dev.demo`: start the stack, run the demo, and exit with its verdict."""

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
from harebell.dev.demo.narration import Narration, print_next_steps
from harebell.dev.demo.schedules import SUFFIX_FORMAT
from harebell.dev.demo.script import play
from harebell.dev.demo.sources import TargetProcess
from harebell.dev.errors import StackError
from harebell.dev.stack import DEFAULT_ROOT, Stack

SUCCESS, FAILURE, INTERRUPTED = 0, 1, 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m harebell.dev.demo")
    parser.add_argument(
        "--root", type=Path, default=DEFAULT_ROOT, help="Use the stack in this folder."
    )
    root: Path = parser.parse_args().root
    narration = Narration(Console())
    try:
        return run_demo(root, narration)
    except (StackError, HarebellError, TimeoutExpired, OSError) as error:
        narration.text(f"The demo ends: {error}")
        return FAILURE
    except KeyboardInterrupt:
        narration.text(
            f"The demo was interrupted. The stack keeps running. Stop it with {stop_command(root)}."
        )
        return INTERRUPTED


def run_demo(root: Path, narration: Narration) -> int:
    commands.check_installed()
    narration.heading("The stack")
    narration.text("RabbitMQ, PostgreSQL and the five services start unless they run already.")
    started_at = monotonic()
    stack = Stack(root, print_message=narration.text)
    status = stack.start()
    narration.text(f"All are ready after {monotonic() - started_at:.1f} s.")
    suffix = f"{datetime.now(UTC):{SUFFIX_FORMAT}}"
    with TargetProcess.open(stack.root / "logs" / f"demo-{suffix}") as target:
        verdict = asyncio.run(play(status.amqp_url, target, suffix=suffix, narration=narration))
    narration.heading("Verdict")
    narration.text(f"{verdict}: {'passed' if verdict.has_passed else 'FAILED'}")
    print_next_steps(narration, status, suffix=suffix, stop=stop_command(root))
    return SUCCESS if verdict.has_passed else FAILURE


def stop_command(root: Path) -> str:
    if root == DEFAULT_ROOT:
        return "make down"
    return commands.display_line("dev", "stop", "--root", str(root))


if __name__ == "__main__":
    sys.exit(main())
