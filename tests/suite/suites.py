"""The suites and their parts: which tests run, with how many workers, in which order."""

from dataclasses import dataclass
from typing import Final

# pytest-xdist would sort the files by their number of tests. tests/rig/file_order.py sorts them
# by their duration.
BY_FILE: Final = ("--dist", "loadfile", "--no-loadscope-reorder")
BY_TEST: Final = ("--dist", "worksteal")
SERVER_TESTS: Final = "server and not chaos and not long"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a suite: pytest with these arguments, and a command that runs beside it.

    The next parts do not run after a failure if the part is a `gate`.
    """

    name: str
    arguments: tuple[str, ...]
    beside: tuple[str, ...] = ()
    is_gate: bool = False


# mypy uses one core, so the tests without servers use the other one at the same time.
TEST: Final = (
    Part(
        name="checks and tests without servers",
        arguments=("-n2", *BY_TEST, "-m", "not server and not chaos and not long"),
        beside=("make", "--no-print-directory", "check"),
        is_gate=True,
    ),
    Part(
        name="integration",
        arguments=("-n3", *BY_TEST, "-m", SERVER_TESTS, "tests/contract", "tests/integration"),
    ),
    # Stacks that start at the same time disturb the measurements: three workers, not four.
    Part(name="acceptance", arguments=("-n3", *BY_FILE, "-m", SERVER_TESTS, "tests/acceptance")),
)
SUITES: Final = {"test": TEST}
