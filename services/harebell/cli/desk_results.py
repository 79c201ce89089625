"""What became of each letter, or group, that a command to the desk named."""

from typing import Final

from harebell.cli.exits import Exit, exit_of_many
from harebell.cli.session import Session
from harebell.client import DlqAnswer

DONE: Final = (
    "replayed",
    "dropped",
    "edited",
    "imported",
    "present",
    "noted",
    "muted",
    "archived",
    "open",
)
MISSING: Final = "not_found"


def show_results(session: Session, answer: DlqAnswer) -> Exit:
    rows = [{"id": id_, "status": status} for id_, status in answer.results.items()]
    session.output.rows(rows, ("id", "status"))
    statuses = list(answer.results.values())
    done = sum(status in DONE for status in statuses)
    missing = statuses.count(MISSING)
    return exit_of_many(done=done, missing=missing, failed=len(statuses) - done - missing)
