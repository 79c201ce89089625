"""Exit codes, and which of them an error or a result is."""

from enum import IntEnum

from harebell.contract.errors import HarebellError, InvalidInput, NotFound


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_MATCH = 3  # nothing matched
    PARTIAL = 4


def exit_code_of(error: HarebellError) -> ExitCode:
    """`Malformed` was found before anything was sent: wrong usage."""
    if isinstance(error, InvalidInput):
        return ExitCode.USAGE
    return ExitCode.NO_MATCH if error.code == NotFound.code else ExitCode.FAILED


def exit_code_of_many(*, done: int, failed: int = 0, missing: int = 0) -> ExitCode:
    if done:
        return ExitCode.PARTIAL if failed or missing else ExitCode.DONE
    return ExitCode.FAILED if failed else ExitCode.NO_MATCH
