"""The dialect of cron expressions: an expression is checked and converted to plain numbers.

The tables of docs/architecture/cron.md define the dialect. The parser decides about every detail
before croniter sees the expression, so the dialect never depends on croniter.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final
from uuid import UUID

from harebell.contract.errors import InvalidCron
from harebell.contract.when import MAX_CRON
from harebell.domain.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Field,
    OpenStep,
    Token,
    combine,
    day_of_month,
    day_of_week,
    open_step,
    values,
)
from harebell.domain.cron.foreign_forms import advice_for

MAX_CACHED: Final = 8_192  # expressions
_NIL: Final = UUID(int=0)
_FIVE, _SIX = 5, 6  # fields
_FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_BLANKS: Final = " \t"
_FORBIDDEN: Final = re.compile(r"[^\x20-\x7e\t]")
_WORD: Final = re.compile(r"[^ \t]+")
_HASH: Final = re.compile(r"(?<![A-Z])H(?![A-Z])")
_ZONE_PREFIX: Final = re.compile(r"(CRON_)?TZ=")
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class ParsedCron:
    """A converted expression.

    `text` contains minute, hour, day, month, weekday and optionally second, as numbers and lists.
    `is_fixed_time` is true if neither the minute nor the hour begins with `*`, see `DstRule`.
    """

    text: str
    is_fixed_time: bool


def parse(expression: str, hash_id: UUID | None) -> ParsedCron:
    """Return the converted expression. Raise `InvalidCron`.

    Without an id, the nil UUID decides `H`, so that a preview is possible.
    """
    if len(expression) > MAX_CRON:
        # Errors appear in responses and logs, so the error contains a truncated expression.
        reason = f"The expression must have at most {MAX_CRON} characters, not {len(expression)}."
        raise InvalidCron(expression[:MAX_CRON], reason, position=MAX_CRON)
    if _HASH.search(expression.upper()):
        return _convert(expression, hash_id or _NIL)
    return _convert_without_hash(expression)


def times_per_day(expression: str) -> int:
    """Return the maximum number of times on one day. Raise `InvalidCron`."""
    minute, hour, _, _, _, *second = parse(expression, None).text.split()
    columns = [(minute, MINUTE), (hour, HOUR), *((each, SECOND) for each in second)]
    return prod(len(of.all) if text == "*" else len(text.split(",")) for text, of in columns)


def has_wild_day(expression: str) -> bool:
    """Return whether both day fields of a valid expression are restricted, one by `*/n`.

    Debian's cron decides by the first character of a field, although its manual says otherwise.
    """
    day, _, weekday = _words(expression)[-3:]
    fields = day_of_month(day, _NIL), day_of_week(weekday, _NIL)
    is_restricted = all(each.is_restricted for each in fields)
    return is_restricted and "*" in (day.text[:1], weekday.text[:1])


def open_steps(expression: str) -> tuple[OpenStep, ...]:
    """Return the steps after one value in a valid expression, in the order of the fields."""
    words = _words(expression)
    fields = (SECOND, *_FIELDS) if len(words) == _SIX else _FIELDS
    found = (
        open_step(item, of)
        for word, of in zip(words, fields, strict=True)
        for item in word.split(",")
    )
    return tuple(step for step in found if step is not None)


@lru_cache(maxsize=MAX_CACHED)
def _convert_without_hash(expression: str) -> ParsedCron:
    return _convert(expression, _NIL)


def _convert(expression: str, schedule_id: UUID) -> ParsedCron:
    words = _words(expression)
    seconds = [words.pop(0)] if len(words) == _SIX else []
    minute, hour, day, month, weekday = words
    days = combine(day_of_month(day, schedule_id), day_of_week(weekday, schedule_id))
    columns = [
        _column(minute, MINUTE, schedule_id),
        _column(hour, HOUR, schedule_id),
        days[0],
        _column(month, MONTH, schedule_id),
        days[1],
        *(_column(second, SECOND, schedule_id) for second in seconds),
    ]
    has_wildcard = minute.text.startswith("*") or hour.text.startswith("*")
    return ParsedCron(" ".join(columns), is_fixed_time=not has_wildcard)


def _words(expression: str) -> list[Token]:
    forbidden = _FORBIDDEN.search(expression)
    if forbidden is not None:
        reason = (
            f"The expression must be printable ASCII and must not contain {forbidden.group()!a}."
        )
        raise InvalidCron(expression, reason, position=forbidden.start())
    start = len(expression) - len(expression.lstrip(_BLANKS))
    whole = Token(expression.strip(_BLANKS), start, expression)
    advice = advice_for(whole.text)
    if advice is not None:
        raise whole.to_error(advice)
    if whole.text.startswith("@"):
        return _words(_nickname(whole))
    if _ZONE_PREFIX.match(whole.text):
        raise whole.to_error(
            "The time zone must be in the field `timezone`, not in the expression."
        )
    upper = expression.upper()
    words = [Token(w.group(), w.start(), expression) for w in _WORD.finditer(upper)]
    if len(words) not in (_FIVE, _SIX):
        extra = words[_SIX] if len(words) > _SIX else Token("", len(expression), expression)
        raise extra.to_error(
            f"The expression must have five fields, or six with seconds first, not {len(words)}."
        )
    return words


def _nickname(token: Token) -> str:
    if token.text == "@reboot":
        raise token.to_error("The nickname @reboot has no scheduled time.")
    if token.text not in _NICKNAMES:
        raise token.to_error(
            f"The nickname must be one of {', '.join(_NICKNAMES)}, not {token.text!r}."
        )
    return _NICKNAMES[token.text]


def _column(token: Token, of: Field, schedule_id: UUID) -> str:
    numbers: set[int] = set()
    for item in token.split(","):
        if item.text == "?":
            raise item.to_error(
                f"The character ? is for the day fields only, not for the {of.name}."
            )
        numbers |= values(item, of, schedule_id)
    return "*" if len(numbers) == len(of.all) else ",".join(map(str, sorted(numbers)))
