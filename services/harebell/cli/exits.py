"""Exit codes, and which of them an error or a result is."""

from enum import IntEnum

from harebell.contract.errors import HarebellError, Malformed, NotFound


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3  # nothing matched
    PARTLY = 4


def exit_of(error: HarebellError) -> Exit:
    """`Malformed` was found before anything was sent: wrong usage."""
    if isinstance(error, Malformed):
        return Exit.USAGE
    return Exit.NOTHING if error.code == NotFound.code else Exit.FAILED


def exit_of_many(*, done: int, failed: int = 0, missing: int = 0) -> Exit:
    if done:
        return Exit.PARTLY if failed or missing else Exit.DONE
    return Exit.FAILED if failed else Exit.NOTHING
