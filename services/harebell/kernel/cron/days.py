"""The two day fields: last days, nearest weekdays, nth weekdays, and how the fields combine."""

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from harebell.kernel.cron.fields import DAY, WEEKDAY, Field, value, values
from harebell.kernel.cron.token import Token

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
