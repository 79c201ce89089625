"""The fields of a cron expression and the numbers that `*`, `a`, `a-b`, `/n` and `H` stand for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from uuid import UUID

from harebell.kernel.cron.hashing import hashed_value
from harebell.kernel.cron.token import Token


def _numbered(names: str, first: int) -> Mapping[str, int]:
    return MappingProxyType({name: n for n, name in enumerate(names.split(), first)})


@dataclass(frozen=True, slots=True)
class Field:
    """`high` is the last value that can be written, `last` the last that `*` and `H` count to."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    last: int = -1
    hash_high: int = -1

    @property
    def all(self) -> range:
        return range(self.low, (self.high if self.last < 0 else self.last) + 1)

    @property
    def hashed(self) -> range:
        return self.all if self.hash_high < 0 else range(self.low, self.hash_high + 1)


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
# `H` stops at the 28th so that a monthly schedule runs in every month.
DAY: Final = Field("day of month", 1, 31, hash_high=28)
MONTH: Final = Field(
    "month", 1, 12, _numbered("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1)
)
WEEKDAY: Final = Field("day of week", 0, 7, _numbered("SUN MON TUE WED THU FRI SAT", 0), last=6)


def values(item: Token, of: Field, schedule_id: UUID) -> set[int]:
    """Return the numbers that one item of a list stands for."""
    base, slash = item.divide("/")
    step = None if slash is None else _step(slash, of)
    if base.text == "*":
        return set(of.all[::step])
    if base.text.startswith("H"):
        return _hashed(base, of, step, schedule_id)
    first, last = base.divide("-")
    if last is not None:
        return set(_range(first, last, of)[::step])
    if slash is not None:
        raise base.fault(f"a step needs * or a range before it, not {base.text or 'nothing'}")
    return {value(base, of)}


def value(written: Token, of: Field) -> int:
    named = of.names.get(written.text)
    if named is not None:
        return named
    number = _number(written, of)
    if number < of.low:
        raise written.fault(f"{of.name} {number} is under {of.low}")
    if number > of.high:
        raise written.fault(f"{of.name} {number} is over {of.high}")
    return number


def _number(written: Token, of: Field) -> int:
    if not written.text:
        raise written.fault(f"a {of.name} is missing here")
    if written.text.isdigit():
        return int(written.text)
    if written.text.startswith("R"):
        raise written.fault("R would draw other times at every look; H draws once for ever")
    raise written.fault(f"{written.text} is not a {of.name}")


def _range(first: Token, last: Token, of: Field) -> range:
    start, end = value(first, of), value(last, of)
    if start <= end:
        return range(start, end + 1)
    hint = "; as the end of a range Sunday is 7" if of is WEEKDAY and end == 0 else ""
    raise first.fault(f"the range {first.text}-{last.text} is reversed{hint}")


def _step(written: Token, of: Field) -> int:
    step = _number(written, of)
    if step == 0:
        raise written.fault("a step of 0 never moves")
    if step > len(of.all):
        raise written.fault(f"a step of {step} is longer than the {of.name} field ({len(of.all)})")
    return step


def _hashed(base: Token, of: Field, step: int | None, schedule_id: UUID) -> set[int]:
    among = of.hashed if base.text == "H" else _hash_range(base, of)
    if step is None:
        return {among[hashed_value(schedule_id, of.name, len(among))]}
    start = hashed_value(schedule_id, of.name, min(step, len(among)))
    return set(among[start::step])


def _hash_range(base: Token, of: Field) -> range:
    opening, closing = base.text[1:2], base.text[-1:]
    if opening != "(" or closing != ")":
        raise base.fault(f"{base.text} is not H, H(a-b), H/n or H(a-b)/n")
    first, last = base.cut(2, -1).divide("-")
    if last is None:
        raise first.fault("H takes a range: H(a-b)")
    return _range(first, last, of)
