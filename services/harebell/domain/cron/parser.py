"""Our cron dialect: text that anybody may have sent in, checked and put in plain numbers.

Everything is decided here, before the calendar sees it: what we accept is our table in
docs/architecture/cron.md and never what the calendar's library happens to let through.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from harebell.contract.errors import InvalidCron
from harebell.contract.when import MAX_CRON
from harebell.domain.cron.fields import (
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Field,
    Token,
    combine,
    day_of_month,
    day_of_week,
    values,
)

READ_MEMO: Final = 8_192  # expressions
_NIL: Final = UUID(int=0)
_FIVE, _SIX = 5, 6  # fields
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
    """`text`: minute, hour, day, month, weekday and perhaps second, in numbers and lists."""

    text: str
    fixed: bool  # neither the minute nor the hour begins with `*`: the DST rule asks


def parse(expression: str, hash_id: UUID | None) -> ParsedCron:
    """Without an id `H` is drawn for the nil UUID, so that a preview is possible."""
    if len(expression) > MAX_CRON:
        # The text is cut too: an error travels into answers and logs.
        reason = f"longer than {MAX_CRON} characters"
        raise InvalidCron(expression[:MAX_CRON], reason, position=MAX_CRON)
    if _HASH.search(expression.upper()):
        return _read(expression, hash_id or _NIL)
    return _read_plain(expression)


@lru_cache(maxsize=READ_MEMO)
def _read_plain(expression: str) -> ParsedCron:
    return _read(expression, _NIL)


def _read(expression: str, schedule_id: UUID) -> ParsedCron:
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
    wild = minute.text.startswith("*") or hour.text.startswith("*")
    return ParsedCron(" ".join(columns), fixed=not wild)


def _words(expression: str) -> list[Token]:
    alien = _FORBIDDEN.search(expression)
    if alien is not None:
        reason = f"{alien.group()!a} is not a printable ASCII character"
        raise InvalidCron(expression, reason, position=alien.start())
    start = len(expression) - len(expression.lstrip(_BLANKS))
    whole = Token(expression.strip(_BLANKS), start, expression)
    if whole.text.startswith("@"):
        return _words(_nickname(whole))
    if _ZONE_PREFIX.match(whole.text):
        raise whole.fault("the time zone is a field of its own, not part of the expression")
    upper = expression.upper()
    words = [Token(w.group(), w.start(), expression) for w in _WORD.finditer(upper)]
    if len(words) not in (_FIVE, _SIX):
        extra = words[_SIX] if len(words) > _SIX else Token("", len(expression), expression)
        raise extra.fault(f"has {len(words)} fields; five, or six with seconds first, are needed")
    return words


def _nickname(written: Token) -> str:
    if written.text == "@reboot":
        raise written.fault("@reboot has no time: there is no boot that a schedule could follow")
    if written.text not in _NICKNAMES:
        raise written.fault(f"not one of {', '.join(_NICKNAMES)}")
    return _NICKNAMES[written.text]


def _column(written: Token, of: Field, schedule_id: UUID) -> str:
    numbers: set[int] = set()
    for item in written.split(","):
        if item.text == "?":
            raise item.fault(f"? can stand only in the day fields, not in the {of.name}")
        numbers |= values(item, of, schedule_id)
    return "*" if len(numbers) == len(of.all) else ",".join(map(str, sorted(numbers)))
