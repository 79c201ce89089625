"""Policies of a schedule: about failures, missed instants, unknown outcomes, too many starts."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from harebell.contract.message import StrictMessage
from harebell.contract.types import Count, Duration, RateWindow

MAX_RATE_LIMIT_STARTS: Final = 1000  # of one limit: what is remembered of them has to be bounded


class Jitter(StrEnum):
    """How a wait d is spread: none = d, equal = d/2..d, full = 0..d."""

    NONE = "none"
    EQUAL = "equal"
    FULL = "full"


class Backoff(StrictMessage):
    """The wait after attempt n is base * factor^(n-1), at most cap, then jitter."""

    base: Duration = timedelta(seconds=1)
    factor: Annotated[float, Field(ge=1, le=100)] = 2
    cap: Duration = timedelta(minutes=5)
    jitter: Jitter = Jitter.FULL


class RetryPolicy(StrictMessage):
    """`max_attempts` counts the first."""

    max_attempts: Annotated[int, Field(ge=1, le=1000, strict=True)] = 5
    backoff: Backoff = Backoff()


class CatchUpMode(StrEnum):
    """Of the instants that were missed: run none, the latest one, or all (up to `max`)."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class CatchUp(StrictMessage):
    """Instants missed by more than `window` are skipped whatever the mode.

    `not_after` is a local time of day: what was missed is not made up for once that time has come
    after its instant (a nightly run never runs by day).
    """

    mode: CatchUpMode = CatchUpMode.ONE
    window: Duration = timedelta(hours=1)
    max: Annotated[Count, Field(le=100)] = 100
    not_after: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] | None = None


class RecoveryClass(StrEnum):
    """How soon a lapsed lease is noticed: normal 15 s, critical 5 s."""

    NORMAL = "normal"
    CRITICAL = "critical"


class OnUnknown(StrEnum):
    """A run that started and was never heard of again.

    retry: its next attempt. skip: closed as skipped. hold: the schedule stops until a person
    resolves it.
    """

    RETRY = "retry"
    SKIP = "skip"
    BLOCK = "block"


class Overlap(StrEnum):
    """What a run does that is due while another of its schedule runs, or waits to be retried.

    skip: it does not run. queue: it waits its turn. replace: it waits, the other is asked to stop,
    and of several that wait only the newest stays.
    """

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class RateLimitScope(StrEnum):
    """What a limit counts: the runs of this schedule, or all of its tenant that call its target.

    A target is a host with its port, an exchange, or a task, whatever is asked of it. Schedules
    share a limit of their target when they say the same one.
    """

    SCHEDULE = "schedule"
    TARGET = "target"


class RateLimit(StrictMessage):
    """At most so many attempts start within any such span; the others wait, none is used up."""

    per: RateLimitScope
    starts: Annotated[Count, Field(le=MAX_RATE_LIMIT_STARTS)]
    within: RateWindow
