"""The small types of the contract: instants, durations, names, and JSON that can be stored."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, WithJsonSchema

from harebell.contract.message import invalid

MILLISECOND: Final = timedelta(milliseconds=1)
MAX_DURATION: Final = timedelta(days=3660)
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
MAX_REMEMBERED: Final = 40  # characters of an instant: seconds may be told to any digit
MAX_JSON_DEPTH: Final = 32  # levels of arrays and objects

_OUT_OF_RANGE: Final = f"must lie between {EARLIEST.year} and {LATEST.year}"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SHORT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_ISO_SECONDS: Final = (604800.0, 86400.0, 3600.0, 60.0, 1.0)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def truncate_ms(moment: datetime) -> datetime:
    """In UTC, to the millisecond: what becomes a key must be the same everywhere."""
    if moment.tzinfo is UTC and not moment.microsecond % 1000:
        return moment
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def ceil_ms(moment: datetime) -> datetime:
    """To the next whole millisecond: on its way in a message, a wait must not become shorter."""
    whole = truncate_ms(moment)
    return whole if whole == moment else whole + MILLISECOND


def instant_text(moment: datetime) -> str:
    """`2026-11-20T14:00:00Z`, with milliseconds only where there are any."""
    return _utc_text(moment if moment.tzinfo is UTC else moment.astimezone(UTC))


@lru_cache(4096)  # many runs share an instant; elsewhere an hour that comes twice equals itself
def _utc_text(moment: datetime) -> str:
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision)[: -len("+00:00")] + "Z"


def parse_instant(value: object) -> datetime:
    if isinstance(value, str):
        read = _remembered_instant if len(value) <= MAX_REMEMBERED else _told_instant
        return read(value)
    if isinstance(value, datetime):
        return _instant(value)
    raise invalid("invalid_instant", "must be a string such as 2026-12-25T09:00:00+01:00")


def _told_instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise invalid("invalid_instant", f"{text[:40]!r} is not an ISO 8601 instant") from None
    return _instant(moment)


# Many runs share an instant, and a ticket says its own twice.
_remembered_instant: Final = lru_cache(4096)(_told_instant)


def _instant(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise invalid("naive_instant", "has no offset: write Z or +01:00 behind it")
    try:
        moment = truncate_ms(moment)
    except OverflowError:
        raise invalid("invalid_instant", "is out of range") from None
    if not EARLIEST <= moment < LATEST:
        raise invalid("invalid_instant", _OUT_OF_RANGE)
    return moment


def parse_bound(value: object) -> datetime | date:
    """An instant, or a day (in the schedule's zone)."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            raise invalid("invalid_instant", f"{value!r} is not a day") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        if not EARLIEST.date() <= value < LATEST.date():
            raise invalid("invalid_instant", _OUT_OF_RANGE)
        return value
    return parse_instant(value)


def bound_text(value: datetime | date) -> str:
    return instant_text(value) if isinstance(value, datetime) else value.isoformat()


def parse_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise invalid("invalid_duration", 'must be a string such as "30s", "5m", "24h" or "PT30S"')
    return _duration(value)


@lru_cache(4096)  # every ticket says a handful of them, and nearly always the same
def _duration(value: str) -> timedelta:
    seconds = _short_seconds(value) if value[:1] != "P" else _iso_seconds(value)
    if seconds is None:
        raise invalid(
            "invalid_duration", f'{value[:40]!r} is not like "30s", "5m", "24h" or "PT30S"'
        )
    if seconds > MAX_DURATION.total_seconds():
        raise invalid("invalid_duration", f"is longer than {MAX_DURATION.days} days")
    return timedelta(milliseconds=round(seconds * 1000))


def _short_seconds(text: str) -> float | None:
    parts = _SHORT.findall(text[:64])
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _iso_seconds(text: str) -> float | None:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    pairs = zip(match.groups("0"), _ISO_SECONDS, strict=True)
    return sum(float(number) * unit for number, unit in pairs)


@lru_cache(4096)  # likewise in what is written
def duration_text(value: timedelta) -> str:
    """The largest single unit that says it exactly: `90s`, `5m`, `1500ms`."""
    ms = round(value.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0s"


def check_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401  # JSON is any of its types
    """JSON as PostgreSQL can store it; 64-bit integers and lone surrogates are `codec`'s."""
    if depth > MAX_JSON_DEPTH:
        raise invalid("too_deep", f"is nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            check_text(key)
            check_json(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_json(item, depth + 1)
    return value


def check_text(value: str) -> str:
    if "\x00" in value:
        raise invalid("nul_character", "contains a NUL character, which cannot be stored")
    return value


def _bounded(shortest: timedelta, longest: timedelta = MAX_DURATION) -> BeforeValidator:
    def check(value: object) -> timedelta:
        duration = parse_duration(value)
        if not shortest <= duration <= longest:
            limits = f"from {duration_text(shortest)} to {duration_text(longest)}"
            raise invalid("invalid_duration", f"must be {limits}")
        return duration

    return BeforeValidator(check)


_duration_text = PlainSerializer(duration_text, return_type=str, when_used="json")
_duration_schema = WithJsonSchema(
    {
        "type": "string",
        "description": "30s, 5m, 24h or ISO 8601: PT30S",
        "examples": ["30s", "PT5M"],
    }
)
Duration = Annotated[timedelta, _bounded(timedelta(0)), _duration_text, _duration_schema]
Interval = Annotated[timedelta, _bounded(timedelta(seconds=1)), _duration_text, _duration_schema]
RateWindow = Annotated[  # of a limit
    timedelta,
    _bounded(timedelta(seconds=1), timedelta(days=1)),
    _duration_text,
    _duration_schema,
]
AttemptTimeout = Annotated[
    timedelta,
    _bounded(timedelta(milliseconds=1), timedelta(hours=1)),
    _duration_text,
    _duration_schema,
]
Instant = Annotated[
    datetime,
    BeforeValidator(parse_instant),
    PlainSerializer(instant_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Bound = Annotated[
    datetime | date,
    BeforeValidator(parse_bound),
    PlainSerializer(bound_text, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "format": f} for f in ("date-time", "date")]}),
]

Json: TypeAlias = Any  # what orjson gives: str, int, float, bool, None, list, dict
CheckedJson = Annotated[Any, BeforeValidator(check_json)]
Text = Annotated[str, BeforeValidator(check_json)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=256)]
Tenant = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
PoolName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Tag = Annotated[ShortText, StringConstraints(max_length=64)]
Count = Annotated[int, Field(ge=1, strict=True)]
