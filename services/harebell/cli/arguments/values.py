"""Points in time as they are typed: an instant, or how long ago, or how long from now."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic_core import PydanticCustomError

from harebell.contract.errors import InvalidInput
from harebell.contract.types import parse_duration, parse_instant


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


_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def per_second(text: str | None) -> float | None:
    """Raises `Malformed`; whether it is in bounds is the contract's to say."""
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        return float(number) / _SECONDS[unit or "s"]
    except (ValueError, KeyError):
        raise InvalidInput(f"{text!r} is not like 5/s or 100/m", field="rate") from None
