"""What a target is told about the attempt that calls it."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from harebell.contract.amqp_names import (
    ATTEMPT,
    FENCING_TOKEN,
    IDEMPOTENCY_KEY,
    RUN_ID,
    SCHEDULE_ID,
    SCHEDULED_FOR,
)
from harebell.contract.ticket import Ticket
from harebell.contract.types import instant_text
from harebell.domain.retry import Failure


class AttemptContext(NamedTuple):
    """`number` counts from 1; `token` is the fencing token, which only grows over a run's life."""

    ticket: Ticket
    number: int
    token: int

    def headers(self) -> dict[str, str]:
        """The same on HTTP requests and AMQP messages."""
        run_id = self.ticket.run_id
        return {
            RUN_ID: run_id,
            SCHEDULE_ID: str(self.ticket.schedule_id),
            SCHEDULED_FOR: instant_text(self.ticket.scheduled_for),
            ATTEMPT: str(self.number),
            FENCING_TOKEN: str(self.token),
            IDEMPOTENCY_KEY: run_id,
        }


MAX_EXCERPT: Final = 1024  # bytes of UTF-8


class Success(NamedTuple):
    """`status` is HTTP's; `result` is an excerpt."""

    status: int | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was asked to stop, and has been cancelled in the midst of its work."""

    reason: str


Outcome: TypeAlias = Success | Failure  # what a target may come to
AttemptOutcome: TypeAlias = Outcome | Stopped  # what an attempt may


def excerpt(text: str) -> str:
    """The beginning of `text`, as PostgreSQL can store it: no NUL, no lone surrogate."""
    kept = text[:MAX_EXCERPT].replace("\x00", "\ufffd").encode(errors="replace")
    return kept[:MAX_EXCERPT].decode(errors="ignore")


def json_excerpt(value: Any) -> str | None:  # noqa: ANN401  # whatever a task returned
    """As JSON text; None for None. Never raises: the work is done, whatever it returned."""
    if value is None:
        return None
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates, nesting without end
        text = f"<{type(value).__name__}>"
    return excerpt(text)


def error_text(error: BaseException) -> str:
    """`KeyError: 'seconds'`, cut to an excerpt."""
    return excerpt(f"{type(error).__name__}: {error}")
