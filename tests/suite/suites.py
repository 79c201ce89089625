"""The suites and their parts: which tests run, with how many workers, in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.rig.file_order import FOLDERS
from tests.rig.registries import OFFLINE
from tests.suite.clock import MOMENTS, Moment

# pytest-xdist would sort the files by their number of tests. tests/rig/file_order.py sorts them
# by their duration.
BY_FILE: Final = ("--dist", "loadfile", "--no-loadscope-reorder")
BY_TEST: Final = ("--dist", "worksteal")
TWO_A_CORE: Final = "-n4"
ALONE: Final = "-n0"

QUICK: Final = "not chaos and not long"  # a test with the marker `deploy` has the marker `long` too
WITHOUT_SERVERS: Final = f"not server and {QUICK}"
SHIFTABLE: Final = f"{QUICK} and not measures and not unshifted"
WITH_SERVERS: Final = f"server and not measures and {QUICK}"
MEASUREMENTS: Final = f"server and measures and {QUICK}"
WITHOUT_ACCEPTANCE: Final = ("--ignore", "tests/acceptance", "tests")
LONG: Final = "long and not chaos and not deploy"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a suite: pytest with these arguments, and a command that runs beside it.

    The next parts do not run after a failure if the part is a `gate`. The tests and their servers
    see the present time, or the time of the `clock`. Each worker has its own servers, but all
    workers of the parts with `shares_broker` have one RabbitMQ.
    """

    name: str
    arguments: tuple[str, ...]
    beside: tuple[str, ...] = ()
    may_be_empty: bool = False
    clock: Moment | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    is_gate: bool = False
    shares_broker: bool = False


UNIT: Final = Part(
    name="tests without servers",
    arguments=("-n2", *BY_TEST, "-m", WITHOUT_SERVERS),
    environment=OFFLINE,
    is_gate=True,
)
# mypy uses one core, so the tests without servers use the other one at the same time.
TEST: Final = (
    replace(
        UNIT,
        name="checks and tests without servers",
        beside=("make", "--no-print-directory", "check"),
    ),
    Part(
        name="tests with servers",
        arguments=(TWO_A_CORE, *BY_FILE, "-m", WITH_SERVERS, *FOLDERS),
        environment=OFFLINE,
        shares_broker=True,
    ),
    Part(
        name="measurements",
        arguments=(ALONE, "-m", MEASUREMENTS, *FOLDERS),
        environment=OFFLINE,
        shares_broker=True,
    ),
)
LONG_TESTS: Final = (
    Part(name="long tests", arguments=("-n2", *BY_FILE, "-m", f"{LONG} and not measures")),
    Part(name="long measurements", arguments=(ALONE, "-m", f"{LONG} and measures")),
)
SELECTION: Final = (
    Part(name="tests of the broker version", arguments=(ALONE, "-m", "broker_version")),
)
# The acceptance tests wait for minutes, and a rule that depends on the clock has a quicker test.
# A timeout of PostgreSQL reads the time in a signal handler, where libfaketime does not shift it.
CLOCK: Final = tuple(
    Part(
        name=moment.name,
        arguments=("-n3", *BY_TEST, "-m", SHIFTABLE, *WITHOUT_ACCEPTANCE),
        clock=moment,
    )
    for moment in MOMENTS
)
AFFECTED: Final = "affected"  # the suite whose tests depend on the changed modules
SUITES: Final = {
    "unit": (UNIT,),
    "test": TEST,
    "test-long": LONG_TESTS,
    "test-clock": CLOCK,
    "selection": SELECTION,
}


def affected_part(tests: Sequence[str]) -> Part:
    """Return the part with these files, which may all have only tests that `make test` omits."""
    arguments = ("-n2", *BY_FILE, "-m", QUICK, *tests)
    return Part(name="affected tests", arguments=arguments, may_be_empty=True)
