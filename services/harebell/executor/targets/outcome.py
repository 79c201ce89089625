"""What an attempt came to: a closed set, and the excerpts of it that the ledger keeps."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from harebell.kernel.retry import Failure

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
