"""Forms of other schedulers that are no cron expression here, and what to write instead."""

import re
from typing import Final

_EVENTBRIDGE: Final = re.compile(r"(cron|rate|at)\s*\(\s*(.*?)\s*\)?", re.IGNORECASE)
_RATE: Final = re.compile(r"(\d+)\s+(minute|hour|day)s?", re.IGNORECASE)
_GO_EVERY: Final = re.compile(r"@every\s+(\S+)", re.IGNORECASE)
_WEEKDAY: Final = re.compile(r"(?<![#\d])[1-7](?!\d)")
_UNITS: Final = {"minute": "m", "hour": "h", "day": "d"}
_EVENTBRIDGE_FIELDS: Final = 6  # minute, hour, day, month, weekday, year
_QUARTZ_FIELDS: Final = 7  # second, minute, hour, day, month, weekday, year


def advice_for(text: str) -> str | None:
    """Return a sentence about a form of another scheduler, or None for any other text."""
    every = _GO_EVERY.fullmatch(text)
    if every is not None:
        return f'The field every has intervals: write {{"every": "{every[1]}"}}.'
    form = _EVENTBRIDGE.fullmatch(text)
    if form is not None:
        return _eventbridge(form[1].lower(), form[2])
    words = text.split()
    if len(words) == _QUARTZ_FIELDS and re.fullmatch(r"[\d,*/-]+", words[-1]):
        without = " ".join(words[:-1])
        return f"A year is no field: write {without!r}, with start and end for the years."
    if len(words) == _EVENTBRIDGE_FIELDS and ("?" in words[2:5:2]) and "?" not in words[3]:
        return _with_fields_of_eventbridge(words)
    return None


def _eventbridge(function: str, content: str) -> str:
    words = content.split()
    if function == "at":
        return f'The field at has one time: write {{"at": "{content}Z"}}, or another offset.'
    if function == "rate":
        rate = _RATE.fullmatch(content)
        interval = "5m" if rate is None else f"{rate[1]}{_UNITS[rate[2].lower()]}"
        return f'The field every has intervals: write {{"every": "{interval}"}}.'
    if len(words) == _EVENTBRIDGE_FIELDS:
        return _with_fields_of_eventbridge(words)
    return "The expression must be without cron( and ), and with the weekdays 0 to 6."


def _with_fields_of_eventbridge(words: list[str]) -> str:
    """Return the advice for minute, hour, day, month, weekday and year, where Sunday is 1."""
    *fields, weekday, year = words
    weekday = _WEEKDAY.sub(lambda day: str(int(day[0]) - 1), weekday)
    written = " ".join([*fields, weekday]).replace("?", "*")
    bounds = "" if year == "*" else ", with start and end for the years"
    return f"EventBridge has other fields: write {written!r}{bounds}."
