"""What became of each letter, or group, that a command to the desk named."""

from typing import Final

from harebell.cli.exits import ExitCode, exit_code_of_many
from harebell.cli.session import Session
from harebell.client import DeadLetterResponse

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


def print_results(session: Session, answer: DeadLetterResponse) -> ExitCode:
    rows = [{"id": id_, "status": status} for id_, status in answer.results.items()]
    session.output.rows(rows, ("id", "status"))
    statuses = list(answer.results.values())
    done = sum(status in DONE for status in statuses)
    missing = statuses.count(MISSING)
    return exit_code_of_many(done=done, missing=missing, failed=len(statuses) - done - missing)
