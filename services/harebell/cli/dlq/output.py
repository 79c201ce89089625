"""The output of dead letter commands: results and dead letters."""

import base64
from typing import Any, Final

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.session import Session
from harebell.client import DeadLetterDetail, DeadLetterResponse

COLUMNS: Final = (
    "id",
    "key",
    "run_id",
    "reason",
    "error_code",
    "attempts",
    "dead_at",
    "state",
)
RESULT_COLUMNS: Final = ("id", "status")
# The results of a command that did what the user requested.
DONE_RESULTS: Final = (
    "replayed",
    "discarded",
    "edited",
    "imported",
    "already_present",
    "noted",
    "muted",
    "archived",
    "open",
)
NOT_FOUND: Final = "not_found"
MAX_BODY_SHOWN: Final = 2_000  # characters of the body of a message
RAW_FIELDS: Final = {"payload", "body", "headers"}
PAYLOAD_FIELDS: Final = ("target", "version", "type", "routing_key", "size", "headers")


def print_results(session: Session, response: DeadLetterResponse) -> ExitCode:
    """Print the result of each dead letter or failure group, and return the exit code."""
    rows = [{"id": id_, "status": status} for id_, status in response.results.items()]
    session.output.print_rows(rows, RESULT_COLUMNS)
    statuses = list(response.results.values())
    done = sum(status in DONE_RESULTS for status in statuses)
    missing = statuses.count(NOT_FOUND)
    return exit_code_of_many(done=done, missing=missing, failed=len(statuses) - done - missing)


def render_dead_letter(dead_letter: DeadLetterDetail) -> dict[str, Any]:
    """Return a dead letter for people: the attempts of a run, or the body of a message as text."""
    payload = dead_letter.payload
    shown = dead_letter.model_dump(mode="json", exclude=RAW_FIELDS)
    shown |= {name: payload[name] for name in PAYLOAD_FIELDS if name in payload}
    if "attempts" in payload:
        shown["attempts"] = payload["attempts"]
    if dead_letter.body is not None:
        text = base64.b64decode(dead_letter.body).decode(errors="backslashreplace")
        shown["body"] = text[:MAX_BODY_SHOWN]
    return shown
