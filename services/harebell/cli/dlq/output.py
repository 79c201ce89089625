"""What became of each letter, or group, that a command to the desk named."""

import asyncio
import base64
import sys
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.session import Session
from harebell.client import Client, DeadLetterResponse

DONE: Final = (
    "replayed",
    "discarded",
    "superseded",
    "imported",
    "already_present",
    "noted",
    "muted",
    "archived",
    "open",
)
MISSING: Final = "not_found"


def print_results(session: Session, answer: DeadLetterResponse) -> ExitCode:
    rows = [{"id": id_, "status": status} for id_, status in answer.results.items()]
    session.output.rows(rows, ("id", "status"))
    statuses = list(answer.results.values())
    done = sum(status in DONE for status in statuses)
    missing = statuses.count(MISSING)
    return exit_code_of_many(done=done, missing=missing, failed=len(statuses) - done - missing)


EVERY: Final = 0.5  # seconds between looks
OVER: Final = ("done", "aborted")
COUNTS: Final = "[green]{task.fields[succeeded]} well[/] [red]{task.fields[failed]} failed[/]"


async def follow_replay_job(harebell: Client, job: UUID | str) -> dict[str, Any]:
    """Until it is over, however long that takes; ^C ends the watching, not the replay."""
    with _bar() as bar:
        task = bar.add_task("replay", total=None, succeeded=0, failed=0)
        while (shown := await harebell.replay_job(job))["state"] not in OVER:
            _draw(bar, task, shown)
            await asyncio.sleep(EVERY)
        _draw(bar, task, shown)
    return shown


def exit_code_of_replay_job(shown: dict[str, Any]) -> ExitCode:
    if shown["state"] == "aborted":
        return ExitCode.FAILED
    return ExitCode.PARTIAL if shown["failed"] or shown["rejected"] else ExitCode.DONE


def _bar() -> Progress:
    return Progress(
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TextColumn(COUNTS), TimeElapsedColumn()),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
    )


def _draw(bar: Progress, task: Any, shown: dict[str, Any]) -> None:  # noqa: ANN401  # rich's id
    over = shown["rejected"] + shown["succeeded"] + shown["failed"]
    bar.update(
        task,
        description=shown["state"],
        total=shown["total"],
        completed=over,
        succeeded=shown["succeeded"],
        failed=shown["failed"],
    )


MAX_BODY: Final = 2_000  # characters of a message's body
TOLD_APART: Final = ("payload", "body", "headers")
OF_STORY: Final = ("target", "version", "type", "routing_key", "size", "headers")


def render_dead_letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """`attempts` are the tries themselves, of a run; `body` is text, of a message."""
    story = letter["payload"]
    told = {name: value for name, value in letter.items() if name not in TOLD_APART}
    told |= {name: story[name] for name in OF_STORY if name in story}
    if "attempts" in story:
        told["attempts"] = story["attempts"]
    if letter.get("body") is not None:
        text = base64.b64decode(letter["body"]).decode(errors="backslashreplace")
        told["body"] = text[:MAX_BODY]
    return told
