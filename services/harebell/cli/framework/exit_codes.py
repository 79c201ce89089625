"""The exit codes of every command, and the exit code of an error or of several results."""

from enum import IntEnum

from harebell.contract.errors import HarebellError, InvalidInput, NotFound


class ExitCode(IntEnum):
    """The exit codes of `harebell`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_MATCH = 3
    PARTIAL = 4


def exit_code_of(error: HarebellError) -> ExitCode:
    """Return the exit code of an error.

    `InvalidInput` is wrong usage, because the client raises it before it sends anything.
    """
    if isinstance(error, InvalidInput):
        return ExitCode.USAGE
    return ExitCode.NO_MATCH if error.code == NotFound.code else ExitCode.FAILED


def exit_code_of_many(*, done: int, failed: int = 0, missing: int = 0) -> ExitCode:
    """Return the exit code of a command with several items, from the number of each result."""
    if done:
        return ExitCode.PARTIAL if failed or missing else ExitCode.DONE
    return ExitCode.FAILED if failed else ExitCode.NO_MATCH
