"""Points in time as they are typed: an instant, or how long ago."""

from datetime import datetime

from pydantic_core import PydanticCustomError

from harebell.contract.errors import Malformed
from harebell.contract.scalars import parse_duration, parse_instant


def moment(text: str, *, now: datetime, field: str) -> datetime:
    """`2026-11-20T14:00:00Z`, or `10m` for ten minutes before now. Raises `Malformed`."""
    try:
        return now - parse_duration(text)
    except PydanticCustomError:
        pass  # then it is an instant
    try:
        return parse_instant(text)
    except PydanticCustomError as error:
        reason = f"{error.message()}; a duration such as 10m does as well"
        raise Malformed(reason, field=field, code=error.type) from None
