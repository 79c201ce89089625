"""Points in time as they are typed: an instant, or how long ago, or how long from now."""

from collections.abc import Callable
from datetime import datetime, timedelta

from pydantic_core import PydanticCustomError

from harebell.contract.errors import InvalidInput
from harebell.contract.scalars import parse_duration, parse_instant


def past_time(text: str, *, now: datetime, field: str) -> datetime:
    """`2026-11-20T14:00:00Z`, or `10m` for ten minutes before now. Raises `Malformed`."""
    return _moment(text, lambda duration: now - duration, field)


def future_time(text: str, *, now: datetime, field: str) -> datetime:
    """`2026-11-20T14:00:00Z`, or `10m` for ten minutes from now. Raises `Malformed`."""
    return _moment(text, lambda duration: now + duration, field)


def _moment(text: str, reckon: Callable[[timedelta], datetime], field: str) -> datetime:
    try:
        return reckon(parse_duration(text))
    except PydanticCustomError:
        pass  # then it is an instant
    try:
        return parse_instant(text)
    except PydanticCustomError as error:
        reason = f"{error.message()}; a duration such as 10m does as well"
        raise InvalidInput(reason, field=field, code=error.type) from None
