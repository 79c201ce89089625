"""Times, durations and rates on the command line.

A time is an instant with its offset, or a duration before or after now.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic_core import PydanticCustomError

from harebell.contract.errors import InvalidInput
from harebell.contract.types import parse_duration, parse_instant

RATE_DECIMALS: Final = 6  # of a rate per second; the rate 1/h is 0.000278

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def past_time(text: str, *, now: datetime, field: str) -> datetime:
    """Return an instant. A duration such as `10m` is the time before now.

    Raises `InvalidInput` for any other text.
    """
    return _time(text, lambda duration: now - duration, field)


def future_time(text: str, *, now: datetime, field: str) -> datetime:
    """Return an instant. A duration such as `10m` is the time after now.

    Raises `InvalidInput` for any other text.
    """
    return _time(text, lambda duration: now + duration, field)


def optional_past_time(text: str | None, *, now: datetime, field: str) -> datetime | None:
    """Return the `past_time` of an option, or None without the option."""
    return None if text is None else past_time(text, now=now, field=field)


def optional_future_time(text: str | None, *, now: datetime, field: str) -> datetime | None:
    """Return the `future_time` of an option, or None without the option."""
    return None if text is None else future_time(text, now=now, field=field)


def duration(text: str, *, field: str) -> timedelta:
    """Return a duration such as `60s`. Raises `InvalidInput` for any other text."""
    try:
        return parse_duration(text)
    except PydanticCustomError as error:
        raise InvalidInput(error.message(), field=field, code=error.type) from None


def rate_per_second(text: str | None) -> float | None:
    """Return a rate such as `5/s` or `100/m` as a number per second.

    Raises `InvalidInput` for any other text. The contract checks the bounds.
    """
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        return round(float(number) / _SECONDS[unit or "s"], RATE_DECIMALS)
    except (ValueError, KeyError):
        raise InvalidInput(
            f"The rate must be a number with a unit, such as 5/s or 100/m, not {text!r}.",
            field="rate",
        ) from None


def _time(text: str, relative: Callable[[timedelta], datetime], field: str) -> datetime:
    try:
        return relative(parse_duration(text))
    except PydanticCustomError:
        pass  # then the text must be an instant
    try:
        return parse_instant(text)
    except PydanticCustomError as error:
        reason = f"{error.message()} A duration such as 10m is also possible."
        raise InvalidInput(reason, field=field, code=error.type) from None
