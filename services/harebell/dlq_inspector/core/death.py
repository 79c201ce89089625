"""What the broker wrote on a message that it dead-lettered itself. For people; decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from harebell.contract.scalars import EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class XDeath:
    """The last one, where a message died more than once."""

    queue: str
    reason: str
    at: datetime | None


def parse_x_death(headers: Mapping[str, Any]) -> XDeath | None:
    """None when these are not the headers of a dead-lettered message."""
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], Mapping):
        return None
    last = deaths[0]  # the broker puts the latest first
    queue, reason, at = last.get("queue"), last.get("reason"), last.get("time")
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    return XDeath(queue, reason, at if _is_instant(at) else None)


def _is_instant(value: object) -> TypeGuard[datetime]:
    """Anyone can write these headers."""
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value < LATEST
