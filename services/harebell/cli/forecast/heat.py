"""Levels of colour, short numbers for counts, and sentences about calendars. Pure."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from harebell.cli.framework.output import printable
from harebell.contract.views import ForecastGroup, ForecastView

MAX_CALENDARS: Final = 8  # that the sentences name
LEVELS: Final = 5  # besides the level 0 of an hour without runs
UNKNOWN: Final = "?"  # an hour that the record did not count
_THOUSAND: Final = 1000
_TEN: Final = 10  # smaller numbers have one digit after the point
_UNITS: Final = ("", "k", "M", "G")


def peak_of(groups: Iterable[ForecastGroup]) -> int:
    """Return the largest count of an hour and group."""
    return max((count or 0 for group in groups for count in group.runs), default=0)


def level_of(count: int | None, peak: int) -> int:
    """Return 0 for no runs and 1 to `LEVELS` otherwise, on a logarithmic scale.

    The load of groups differs by factors of thousands, which a linear scale would hide.
    """
    if not count:
        return 0
    share = math.log1p(count) / math.log1p(peak)
    return max(1, min(LEVELS, math.ceil(share * LEVELS)))


def short_number(count: float | None) -> str:
    """Return at most five characters, such as `999`, `1.2k`, `84k` or `1.5M`."""
    if count is None:
        return UNKNOWN
    number, unit = float(count), 0
    while round(number, 1) >= _THOUSAND and unit < len(_UNITS) - 1:
        number, unit = number / _THOUSAND, unit + 1
    digits = 1 if unit and number < _TEN else 0
    return f"{number:.{digits}f}{_UNITS[unit]}"


def short_duration(milliseconds: float | None) -> str:
    """Return at most five characters, such as `7ms`, `850ms`, `1.2s` or `95s`."""
    if milliseconds is None:
        return ""
    if milliseconds < _THOUSAND:
        return f"{milliseconds:.0f}ms"
    seconds = milliseconds / _THOUSAND
    return f"{seconds:.1f}s" if seconds < _TEN else f"{short_number(seconds)}s"


def group_name(group: ForecastGroup) -> str:
    """Return the name of a group, also of the groups without a name."""
    if group.is_rest:
        return "others"
    return "untagged" if group.name is None else group.name


def calendar_sentences(forecast: ForecastView) -> Iterator[str]:
    """Yield the number of times that each calendar excludes and holds back, most first."""
    tenants = {each.tenant for each in forecast.calendars}
    for each in forecast.calendars[:MAX_CALENDARS]:
        of_tenant = f" of {printable(each.tenant)}" if len(tenants) > 1 else ""
        parts = [
            f"{verb} {_times(count)}"
            for verb, count in (("excludes", each.excluded), ("holds back", each.held))
            if count
        ]
        yield f"The calendar {printable(each.name)}{of_tenant} {' and '.join(parts)}."
    others = len(forecast.calendars) - MAX_CALENDARS
    if others > 0:
        yield f"{others} more calendars exclude or hold back fewer times."


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{short_number(count)} times"
