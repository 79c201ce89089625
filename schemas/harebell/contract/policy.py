"""Policies of a schedule: what to do about failures, missed instants and unknown outcomes."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from harebell.contract.message import Command
from harebell.contract.scalars import Count, Duration


class Jitter(StrEnum):
    """How a wait d is spread: none = d, equal = d/2..d, full = 0..d."""

    NONE = "none"
    EQUAL = "equal"
    FULL = "full"


class Backoff(Command):
    """The wait after attempt n is base * factor^(n-1), at most cap, then jitter."""

    base: Duration = timedelta(seconds=1)
    factor: Annotated[float, Field(ge=1, le=100)] = 2
    cap: Duration = timedelta(minutes=5)
    jitter: Jitter = Jitter.FULL


class RetryPolicy(Command):
    """`max_attempts` counts the first."""

    max_attempts: Annotated[int, Field(ge=1, le=1000, strict=True)] = 5
    backoff: Backoff = Backoff()


class CatchUpMode(StrEnum):
    """Of the instants that were missed: run none, the latest one, or all (up to `max`)."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class CatchUp(Command):
    """Instants missed by more than `window` are skipped whatever the mode."""

    mode: CatchUpMode = CatchUpMode.ONE
    window: Duration = timedelta(hours=1)
    max: Annotated[Count, Field(le=100)] = 100


class RecoveryClass(StrEnum):
    """How soon a lapsed lease is noticed: normal 15 s, critical 5 s."""

    NORMAL = "normal"
    CRITICAL = "critical"


class OnUnknown(StrEnum):
    """A run that started and was never heard of again: its next attempt, or closed as skipped."""

    RETRY = "retry"
    SKIP = "skip"


class Overlap(StrEnum):
    """Whether a run may start while another of its schedule runs."""

    ALLOW = "allow"
