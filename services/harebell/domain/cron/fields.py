"""The two day fields: last days, nearest weekdays, nth weekdays, and how the fields combine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Final
from uuid import UUID

from harebell.contract.errors import InvalidCron


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    at: int  # characters from the start of the expression
    expression: str

    def fault(self, reason: str) -> InvalidCron:
        return InvalidCron(self.expression, reason, position=self.at)

    def cut(self, start: int, end: int | None = None) -> "Token":
        return Token(self.text[start:end], self.at + start, self.expression)

    def split(self, separator: str) -> Iterator["Token"]:
        start = 0
        for text in self.text.split(separator):
            yield Token(text, self.at + start, self.expression)
            start += len(text) + len(separator)

    def divide(self, separator: str) -> tuple["Token", "Token | None"]:
        """Split at the first separator; the second half is None if there is no separator."""
        at = self.text.find(separator)
        if at < 0:
            return self, None
        return self.cut(0, at), self.cut(at + len(separator))


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

_DAYS_A_WEEK: Final = 7
_WEEKS_IN_MONTH: Final = 5  # a month has at most five of one weekday
_NEAREST: Final = re.compile(r"\d+W")
_UNSUPPORTED: Final = re.compile(r"LW|L-\d+|W\d+")
_LAST_BEHIND: Final = re.compile(r"\w+L")  # as Quartz writes it


@dataclass(frozen=True, slots=True)
class DayField:
    """A day field as the calendar wants it; `picky` is an item that cannot be joined by "or"."""

    text: str
    restricted: bool
    picky: Token | None = None


def day_of_month(written: Token, schedule_id: UUID) -> DayField:
    if written.text == "?":
        return DayField("*", restricted=False)
    items = list(written.split(","))
    for item in items:
        if _UNSUPPORTED.fullmatch(item.text):
            raise item.fault(f"{item.text} is not supported: L is the last day, 15W a weekday near")
        if _NEAREST.fullmatch(item.text):
            return _nearest_weekday(item, alone=len(items) == 1)
    last = ["L"] if any(item.text == "L" for item in items) else []
    plain = [item for item in items if item.text != "L"]
    return _listed(plain, DAY, schedule_id, last)


def day_of_week(written: Token, schedule_id: UUID) -> DayField:
    if written.text == "?":
        return DayField("*", restricted=False)
    items = list(written.split(","))
    for item in items:
        if _LAST_BEHIND.fullmatch(item.text):
            raise item.fault(f"{item.text} is not supported: the last Friday is written L5")
    picky = [item for item in items if "#" in item.text or item.text.startswith("L")]
    if not picky:
        return _listed(items, WEEKDAY, schedule_id, [])
    if len(picky) < len(items):
        raise picky[0].fault(f"{picky[0].text} cannot stand in a list with plain weekdays")
    return DayField(",".join(map(_nth_weekday, items)), restricted=True, picky=picky[0])


def combine(month_day: DayField, week_day: DayField) -> tuple[str, str]:
    """Check that "or" can join the two, as it does when both are restricted."""
    picky = month_day.picky or week_day.picky
    if picky is not None and month_day.restricted and week_day.restricted:
        raise picky.fault(f"{picky.text} needs the other day field to be *")
    return month_day.text, week_day.text


def _listed(items: list[Token], of: Field, schedule_id: UUID, last: list[str]) -> DayField:
    if any(item.text in ("*", "*/1") for item in items):
        return DayField("*", restricted=False)
    numbers: set[int] = set()
    for item in items:
        numbers |= values(item, of, schedule_id)
    if of is WEEKDAY:
        numbers = {number % _DAYS_A_WEEK for number in numbers}
    return DayField(",".join([*map(str, sorted(numbers)), *last]), restricted=True)


def _nearest_weekday(item: Token, *, alone: bool) -> DayField:
    if not alone:
        raise item.fault(f"{item.text} cannot stand in a list")
    day = value(item.cut(0, -1), DAY)
    return DayField(f"{day}W", restricted=True, picky=item)


def _nth_weekday(item: Token) -> str:
    """`5#2` is the second Friday, `L5` the last."""
    if item.text.startswith("L"):
        if item.text == "L":
            raise item.fault("L in the day of week needs a day: L5 is the last Friday")
        return f"L{value(item.cut(1), WEEKDAY) % _DAYS_A_WEEK}"
    day, nth = item.divide("#")
    if nth is None or not nth.text.isdigit() or not 1 <= int(nth.text) <= _WEEKS_IN_MONTH:
        raise (nth or item).fault(f"after # comes a number from 1 to {_WEEKS_IN_MONTH}")
    return f"{value(day, WEEKDAY) % _DAYS_A_WEEK}#{int(nth.text)}"


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


# Eight bytes against at most 60 values: no value is favoured measurably.
_DRAWN_BYTES: Final = 8


def hashed_value(schedule_id: UUID, field: str, size: int) -> int:
    """Return a number in [0, size). The fields of one schedule are drawn independently."""
    digest = sha256(schedule_id.bytes + field.encode()).digest()
    return int.from_bytes(digest[:_DRAWN_BYTES]) % size
