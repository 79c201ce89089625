"""Policies of a schedule: retries, catch-up, unknown outcomes, overlap, rates and labels."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from harebell.contract.message import StrictMessage, text_of_form
from harebell.contract.types import TIME_OF_DAY, Count, Duration, RateWindow

MAX_RATE_LIMIT_STARTS: Final = 1000  # of one rate limit, whose row stores each of them
MAX_LABEL_LIMIT: Final = 1000  # runs of one label at once, whose rows each claim reads
LABEL_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$"  # at most 128 characters


class Jitter(StrEnum):
    """The random part of a wait d.

    The wait is d with none, d/2 to d with equal, 0 to d with full, and d to 1.25 d with additive.
    """

    NONE = "none"
    EQUAL = "equal"
    FULL = "full"
    ADDITIVE = "additive"


class Backoff(StrictMessage):
    """The wait after attempt n: base * factor^(n-1) with jitter, at most cap.

    With the default jitter, no wait is shorter than the smaller of base * factor^(n-1) and cap.
    """

    base: Duration = timedelta(seconds=1)
    factor: Annotated[float, Field(ge=1, le=100, strict=True)] = 2
    cap: Duration = timedelta(minutes=5)
    jitter: Jitter = Jitter.ADDITIVE


class RetryPolicy(StrictMessage):
    """The number of attempts, which includes the first, and the waits between them."""

    max_attempts: Annotated[int, Field(ge=1, le=1000, strict=True)] = 5
    backoff: Backoff = Backoff()


class CatchUpMode(StrEnum):
    """The missed scheduled times that still get a run: none, the latest, or all up to `max`."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class CatchUp(StrictMessage):
    """The catch-up policy. Times missed by more than `window` get no run in any mode.

    `not_after` is a local time of day after which no missed run is caught up, so that a nightly run
    never runs by day.
    """

    mode: CatchUpMode = CatchUpMode.ONE
    window: Duration = timedelta(hours=1)
    max: Annotated[Count, Field(le=100)] = 100
    not_after: Annotated[str, TIME_OF_DAY] | None = None


class RecoveryClass(StrEnum):
    """The time after which the lease of a crashed executor expires: normal 15 s, critical 5 s."""

    NORMAL = "normal"
    CRITICAL = "critical"


class OnExcluded(StrEnum):
    """The treatment of a scheduled time that a calendar excludes.

    `next` and `previous` move the time to the nearest open day.
    """

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class OnUnknown(StrEnum):
    """The policy for a run whose attempt started and has an unknown outcome.

    With retry, the next attempt follows. With skip, the run ends as skipped. With block, the
    schedule is blocked until a person resolves the run.
    """

    RETRY = "retry"
    SKIP = "skip"
    BLOCK = "block"


class Overlap(StrEnum):
    """The policy for a run that comes due while an earlier run of the schedule is unfinished.

    With skip, the run does not start. With queue, the run waits for the overlap slot. With
    replace, the run waits, the ticker requests the earlier run to stop, and only the newest waiting
    run remains.
    """

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class RateLimitScope(StrEnum):
    """The starts that a rate limit counts: of this schedule, or of all schedules of a target.

    A target is a host with its port, an exchange or a task. The schedules of one tenant share the
    rate limit of a target if they have the same limit.
    """

    SCHEDULE = "schedule"
    TARGET = "target"


class RateLimit(StrictMessage):
    """The maximum number of attempt starts in any window. Later starts wait and use no attempt."""

    per: RateLimitScope
    starts: Annotated[Count, Field(le=MAX_RATE_LIMIT_STARTS)]
    within: RateWindow


class Concurrency(StrictMessage):
    """The maximum number of runs with one label that execute at once, over all executors.

    Labels belong to a tenant. Schedules with the same label share its slots, and the limit of each
    schedule applies to its own runs. Runs that wait use no attempt.
    """

    label: Annotated[
        str,
        text_of_form(
            LABEL_PATTERN,
            "have 1 to 128 letters, digits and _.:/-, and begin with a letter or digit",
        ),
    ]
    limit: Annotated[Count, Field(le=MAX_LABEL_LIMIT)]
