"""The fields of a cron expression: tokens, names, ranges, steps, hashed values and day rules."""

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
    """A part of an expression. `at` is the number of characters before the part."""

    text: str
    at: int
    expression: str

    def to_error(self, reason: str) -> InvalidCron:
        """Return the error about this part, with its position."""
        return InvalidCron(self.expression, reason, position=self.at)

    def slice(self, start: int, end: int | None = None) -> "Token":
        return Token(self.text[start:end], self.at + start, self.expression)

    def split(self, separator: str) -> Iterator["Token"]:
        start = 0
        for text in self.text.split(separator):
            yield Token(text, self.at + start, self.expression)
            start += len(text) + len(separator)

    def partition(self, separator: str) -> tuple["Token", "Token | None"]:
        """Split at the first separator. The second part is None without a separator."""
        at = self.text.find(separator)
        if at < 0:
            return self, None
        return self.slice(0, at), self.slice(at + len(separator))


def _numbered(names: str, first: int) -> Mapping[str, int]:
    return MappingProxyType({name: n for n, name in enumerate(names.split(), first)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of an expression.

    `high` is the largest value that may be written. `last` is the largest value of `*` and of `H`,
    if it differs. `hash_high` is the largest value of `H`, if it differs from both.
    """

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    last: int | None = None
    hash_high: int | None = None

    @property
    def all(self) -> range:
        return range(self.low, (self.high if self.last is None else self.last) + 1)

    @property
    def hashed(self) -> range:
        return self.all if self.hash_high is None else range(self.low, self.hash_high + 1)


SECOND: Final = Field(name="second", low=0, high=59)
MINUTE: Final = Field(name="minute", low=0, high=59)
HOUR: Final = Field(name="hour", low=0, high=23)
# `H` ends at 28, so that a monthly schedule runs in every month.
DAY: Final = Field(name="day of month", low=1, high=31, hash_high=28)
MONTH: Final = Field(
    name="month",
    low=1,
    high=12,
    names=_numbered("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
)
WEEKDAY: Final = Field(
    name="day of week",
    low=0,
    high=7,
    names=_numbered("SUN MON TUE WED THU FRI SAT", 0),
    last=6,
)

_DAYS_PER_WEEK: Final = 7
_MAX_NTH: Final = 5  # a month has at most five days of one weekday
_NEAREST: Final = re.compile(r"\d+W")
_UNSUPPORTED_DAY: Final = re.compile(r"LW|L-\d+|W\d+")
_QUARTZ_LAST: Final = re.compile(r"\w+L")


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step after one value, such as `20/10`, in the field `field`, and its full form."""

    field: str
    written: str
    meaning: str


@dataclass(frozen=True, slots=True)
class DayField:
    """A converted day field.

    `exclusive` is an item that cannot be combined with the other day field.
    """

    text: str
    is_restricted: bool
    exclusive: Token | None = None


def day_of_month(token: Token, schedule_id: UUID) -> DayField:
    """Convert the day of month. Raise `InvalidCron`."""
    if token.text == "?":
        return DayField("*", is_restricted=False)
    items = list(token.split(","))
    for item in items:
        if _UNSUPPORTED_DAY.fullmatch(item.text):
            raise item.to_error(
                f"The day of month must be a number, L (the last day) or a form like 15W "
                f"(the nearest weekday), not {item.text!r}."
            )
        if _NEAREST.fullmatch(item.text):
            return _nearest_weekday(item, is_alone=len(items) == 1)
    last = ["L"] if any(item.text == "L" for item in items) else []
    plain = [item for item in items if item.text != "L"]
    return _day_list(plain, DAY, schedule_id, last=last)


def day_of_week(token: Token, schedule_id: UUID) -> DayField:
    """Convert the day of week. Raise `InvalidCron`."""
    if token.text == "?":
        return DayField("*", is_restricted=False)
    items = list(token.split(","))
    for item in items:
        if _QUARTZ_LAST.fullmatch(item.text):
            raise item.to_error(f"The last Friday must be written as L5, not as {item.text!r}.")
    exclusive = [item for item in items if "#" in item.text or item.text.startswith("L")]
    if not exclusive:
        return _day_list(items, WEEKDAY, schedule_id, last=[])
    if len(exclusive) < len(items):
        raise exclusive[0].to_error(
            f"The item {exclusive[0].text!r} must not be in a list with plain days of the week."
        )
    text = ",".join(map(_nth_weekday, items))
    return DayField(text, is_restricted=True, exclusive=exclusive[0])


def combine(month_day: DayField, week_day: DayField) -> tuple[str, str]:
    """Return both day fields. A date matches if one of two restricted fields matches.

    Raise `InvalidCron` for an exclusive item next to a restricted field.
    """
    exclusive = month_day.exclusive or week_day.exclusive
    if exclusive is not None and month_day.is_restricted and week_day.is_restricted:
        raise exclusive.to_error(f"The item {exclusive.text!r} requires * in the other day field.")
    return month_day.text, week_day.text


def _day_list(items: list[Token], of: Field, schedule_id: UUID, *, last: list[str]) -> DayField:
    if any(item.text in ("*", "*/1") for item in items):
        return DayField("*", is_restricted=False)
    numbers: set[int] = set()
    for item in items:
        numbers |= values(item, of, schedule_id)
    if of is WEEKDAY:
        numbers = {number % _DAYS_PER_WEEK for number in numbers}
    return DayField(",".join([*map(str, sorted(numbers)), *last]), is_restricted=True)


def _nearest_weekday(item: Token, *, is_alone: bool) -> DayField:
    if not is_alone:
        raise item.to_error(f"The item {item.text!r} must not be in a list.")
    day = value(item.slice(0, -1), DAY)
    return DayField(f"{day}W", is_restricted=True, exclusive=item)


def _nth_weekday(item: Token) -> str:
    """Convert `5#2` (the second Friday) or `L5` (the last Friday)."""
    if item.text.startswith("L"):
        if item.text == "L":
            raise item.to_error(
                "L in the day of week requires a day, such as L5 for the last Friday."
            )
        return f"L{value(item.slice(1), WEEKDAY) % _DAYS_PER_WEEK}"
    day, nth = item.partition("#")
    if nth is None or not nth.text.isdigit() or not 1 <= int(nth.text) <= _MAX_NTH:
        found = "" if nth is None else nth.text
        raise (nth or item).to_error(
            f"The part after # must be a number from 1 to {_MAX_NTH}, not {found!r}."
        )
    return f"{value(day, WEEKDAY) % _DAYS_PER_WEEK}#{int(nth.text)}"


def values(item: Token, of: Field, schedule_id: UUID) -> set[int]:
    """Return the numbers of one item of a list: `*`, `a`, `a-b`, `/n` or `H`.

    A step after one value continues to the end of the field: `20/10` is `20-59/10`.
    """
    base, step_token = item.partition("/")
    step = None if step_token is None else _step(step_token, of)
    if base.text == "*":
        return set(of.all[::step])
    if base.text.startswith("H"):
        return _hashed(base, of, step, schedule_id=schedule_id)
    first, last = base.partition("-")
    if last is not None:
        return set(_range(first, last, of)[::step])
    if step_token is not None:
        return set(_open_range(base, of)[::step])
    return {value(base, of)}


def open_step(item: Token, of: Field) -> OpenStep | None:
    """Return the meaning of a valid item with a step after one value, or None for other items."""
    base, step = item.partition("/")
    if step is None or base.text == "*" or base.text.startswith("H") or "-" in base.text:
        return None
    numbers = _open_range(base, of)
    return OpenStep(of.name, item.text, f"{numbers[0]}-{numbers[-1]}/{step.text}")


def value(token: Token, of: Field) -> int:
    """Return the number of a value. Raise `InvalidCron` outside the range of the field."""
    named = of.names.get(token.text)
    if named is not None:
        return named
    number = _number(token, of)
    if not of.low <= number <= of.high:
        raise token.to_error(f"The {of.name} must be from {of.low} to {of.high}, not {number}.")
    return number


def _number(token: Token, of: Field) -> int:
    if token.text.isdigit():
        return int(token.text)
    if not token.text:
        raise token.to_error(f"The {of.name} must not be empty.")
    if token.text.startswith("R"):
        raise token.to_error("A random value must be written as H, which never changes, not as R.")
    expected = "a number or a name" if of.names else "a number"
    raise token.to_error(f"The {of.name} must be {expected}, not {token.text!r}.")


def _range(first: Token, last: Token, of: Field) -> range:
    start, end = value(first, of), value(last, of)
    if start <= end:
        return range(start, end + 1)
    hint = " At the end of a range, Sunday is 7." if of is WEEKDAY and end == 0 else ""
    raise first.to_error(f"The range {first.text}-{last.text} must not be reversed.{hint}")


def _open_range(first: Token, of: Field) -> range:
    if not first.text:
        raise first.to_error("A step must follow *, a value or a range, not ''.")
    start = value(first, of)
    # The weekday 7 is Sunday, which is 0 and begins the week.
    return range(of.low if start not in of.all else start, of.all.stop)


def _step(token: Token, of: Field) -> int:
    step = _number(token, of)
    if not 1 <= step <= len(of.all):
        raise token.to_error(
            f"The step of the {of.name} must be from 1 to {len(of.all)}, not {step}."
        )
    return step


def _hashed(base: Token, of: Field, step: int | None, *, schedule_id: UUID) -> set[int]:
    allowed = of.hashed if base.text == "H" else _hash_range(base, of)
    if step is None:
        return {allowed[hashed_value(schedule_id, of.name, len(allowed))]}
    start = hashed_value(schedule_id, of.name, min(step, len(allowed)))
    return set(allowed[start::step])


def _hash_range(base: Token, of: Field) -> range:
    opening, closing = base.text[1:2], base.text[-1:]
    if opening != "(" or closing != ")":
        raise base.to_error(f"The form must be H, H(a-b), H/n or H(a-b)/n, not {base.text!r}.")
    first, last = base.slice(2, -1).partition("-")
    if last is None:
        raise first.to_error("The part in parentheses must be a range, such as H(0-29).")
    return _range(first, last, of)


# Eight bytes against at most 60 values favour no value measurably.
_HASH_BYTES: Final = 8


def hashed_value(schedule_id: UUID, field: str, size: int) -> int:
    """Return a number in [0, size) that depends on the schedule id and the field only."""
    digest = sha256(schedule_id.bytes + field.encode()).digest()
    return int.from_bytes(digest[:_HASH_BYTES]) % size
