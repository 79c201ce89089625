"""The small types of the contract: instants, durations, names and JSON."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from harebell.contract.message import invalid, quoted, text_of_form

M = TypeVar("M", bound=BaseModel)

MILLISECOND: Final = timedelta(milliseconds=1)
MS_DECIMALS: Final = 1  # of each duration that Harebell measures
MAX_DURATION: Final = timedelta(days=3660)
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
LATEST_DELAYED: Final = datetime(2300, 1, 1, tzinfo=UTC)  # by jitter and blackouts
MAX_CACHED_INSTANT: Final = 40  # characters; a fraction of a second may have any number of digits
MAX_COUNT: Final = 2**31 - 1  # the integer columns of PostgreSQL
MAX_DURATION_LENGTH: Final = 64  # characters
MAX_JSON_DEPTH: Final = 32  # levels of arrays and objects

_INSTANT_EXAMPLE: Final = "2026-12-25T09:00:00+01:00"
_DURATION_EXAMPLES: Final = "30s, 5m, 24h or PT30S"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SHORT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_ISO_SECONDS: Final = (604800.0, 86400.0, 3600.0, 60.0, 1.0)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def truncate_ms(time: datetime) -> datetime:
    """Return the instant in UTC, truncated to milliseconds, because keys contain instants."""
    if time.tzinfo is UTC and not time.microsecond % 1000:
        return time
    time = time.astimezone(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def ceil_ms(time: datetime) -> datetime:
    """Return the next whole millisecond, so that a wait in a message never becomes shorter."""
    whole = truncate_ms(time)
    return whole if whole == time else whole + MILLISECOND


def milliseconds(duration: timedelta) -> float:
    """Return a measured duration in milliseconds, for people: `17.9`, not `17.909000000000002`."""
    return rounded_ms(duration / MILLISECOND)


def rounded_ms(ms: float) -> float:
    """Return milliseconds with `MS_DECIMALS` decimals, because a measurement has no more."""
    return round(ms, MS_DECIMALS) + 0.0  # no negative zero


def instant_text(time: datetime) -> str:
    """Return `2026-11-20T14:00:00Z`, with milliseconds only if they are not 0."""
    return _utc_text(time if time.tzinfo is UTC else time.astimezone(UTC))


# In other zones the two instants of a repeated hour compare as equal, so the cache takes UTC only.
@lru_cache(4096)  # many runs share an instant
def _utc_text(time: datetime) -> str:
    precision = "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=precision)[: -len("+00:00")] + "Z"


def parse_instant(value: object) -> datetime:
    """Return an instant in UTC, in milliseconds."""
    if isinstance(value, str):
        read = cached_instant if len(value) <= MAX_CACHED_INSTANT else _instant_of_text
        return read(value)
    if isinstance(value, datetime):
        return _checked_instant(value)
    raise _invalid_instant(value)


def _instant_of_text(text: str, latest: datetime = LATEST) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise _invalid_instant(text) from None
    return _checked_instant(time, latest)


# Many runs share an instant, and a ticket contains its scheduled time twice.
cached_instant: Final = lru_cache(4096)(_instant_of_text)


def _checked_instant(time: datetime, latest: datetime = LATEST) -> datetime:
    if time.tzinfo is None:
        reason = f"The instant must have an offset, such as Z or +01:00, not {_shown(time)}."
        raise invalid("naive_instant", reason)
    try:
        time = truncate_ms(time)
    except OverflowError:
        raise _out_of_range(time) from None
    if not EARLIEST <= time < latest:
        raise _out_of_range(time)
    return time


def parse_delayed_instant(value: object) -> datetime:
    """Return an instant in UTC that a delay may have moved beyond `LATEST`."""
    if isinstance(value, str):
        return _instant_of_text(value, LATEST_DELAYED)
    if isinstance(value, datetime):
        return _checked_instant(value, LATEST_DELAYED)
    raise _invalid_instant(value)


def _invalid_instant(found: object) -> Exception:
    form = f"an ISO 8601 string such as {_INSTANT_EXAMPLE}"
    return invalid("invalid_instant", f"The instant must be {form}, not {quoted(found)}.")


def _out_of_range(time: date) -> Exception:
    years = f"between {EARLIEST.year} and {LATEST.year}"
    return invalid("invalid_instant", f"The instant must be {years}, not {_shown(time)}.")


def _shown(time: date) -> str:
    return quoted(time.isoformat())


def parse_bound(value: object) -> datetime | date:
    """Return an instant, or a day in the time zone of the schedule."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            reason = f"The day must exist in the calendar, not {quoted(value)}."
            raise invalid("invalid_instant", reason) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        if not EARLIEST.date() <= value < LATEST.date():
            raise _out_of_range(value)
        return value
    return parse_instant(value)


def bound_text(value: datetime | date) -> str:
    """Return the ISO 8601 form of an instant or a day."""
    return instant_text(value) if isinstance(value, datetime) else value.isoformat()


def parse_duration(value: object) -> timedelta:
    """Return a duration in milliseconds, from `1h30m` or from ISO 8601."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        reason = f"The duration must be a string such as {_DURATION_EXAMPLES}, not {quoted(value)}."
        raise invalid("invalid_duration", reason)
    return _duration_of_text(value)


@lru_cache(4096)  # every ticket contains several durations, and most tickets contain the same
def _duration_of_text(text: str) -> timedelta:
    seconds = _short_seconds(text) if text[:1] != "P" else _iso_seconds(text)
    if seconds is None:
        reason = f"The duration must have a form such as {_DURATION_EXAMPLES}, not {quoted(text)}."
        raise invalid("invalid_duration", reason)
    if seconds > MAX_DURATION.total_seconds():
        reason = f"The duration must be at most {MAX_DURATION.days} days, not {text[:40]}."
        raise invalid("invalid_duration", reason)
    return timedelta(milliseconds=round(seconds * 1000))


def _short_seconds(text: str) -> float | None:
    parts = _SHORT.findall(text[:MAX_DURATION_LENGTH])
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _iso_seconds(text: str) -> float | None:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    pairs = zip(match.groups("0"), _ISO_SECONDS, strict=True)
    return sum(float(number) * unit for number, unit in pairs)


@lru_cache(4096)  # as above
def duration_text(value: timedelta) -> str:
    """Return the duration in the largest single unit that is exact: `90s`, `5m`, `1500ms`."""
    ms = round(value.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0s"


def check_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401  # JSON is any of its types
    """Return JSON that PostgreSQL can store. `json_codec` rejects long integers and surrogates."""
    if depth > MAX_JSON_DEPTH:
        reason = f"The JSON value must not be nested deeper than {MAX_JSON_DEPTH} levels."
        raise invalid("too_deep", reason)
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
    """Return the text. Raise an error for a NUL character, which PostgreSQL cannot store."""
    if "\x00" in value:
        reason = (
            f"The text {quoted(value)} contains a NUL character, which PostgreSQL cannot store."
        )
        raise invalid("nul_character", reason)
    return value


def exactly_one_of(*names: str) -> Any:  # noqa: ANN401  # a validator, as pydantic knows it
    """Return a model validator: exactly one of these fields has a value."""

    def check(message: BaseModel) -> BaseModel:
        given = [name for name in names if getattr(message, name) is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none of them"
            reason = f"The message must have exactly one of {', '.join(names)}, but has {found}."
            raise invalid("invalid_reference", reason)
        return message

    return model_validator(mode="after")(check)


def check_filter(filter_: M) -> M:
    """Return a filter that selects something. Raise an error if all its fields are absent."""
    if all(getattr(filter_, name) is None for name in filter_.model_fields_set):
        names = ", ".join(type(filter_).model_fields)
        raise invalid("invalid_filter", f"The filter must have at least one of {names}.")
    return filter_


def _bounded(shortest: timedelta, longest: timedelta = MAX_DURATION) -> BeforeValidator:
    def check(value: object) -> timedelta:
        duration = parse_duration(value)
        if not shortest <= duration <= longest:
            limits = f"from {duration_text(shortest)} to {duration_text(longest)}"
            reason = f"The duration must be {limits}, not {duration_text(duration)}."
            raise invalid("invalid_duration", reason)
        return duration

    return BeforeValidator(check)


_duration_text = PlainSerializer(duration_text, return_type=str, when_used="json")
_duration_schema = WithJsonSchema(
    {
        "type": "string",
        "maxLength": MAX_DURATION_LENGTH,
        "description": "30s, 5m, 24h or ISO 8601: PT30S",
        "examples": ["30s", "PT5M"],
    }
)
Duration = Annotated[timedelta, _bounded(timedelta(0)), _duration_text, _duration_schema]
Interval = Annotated[timedelta, _bounded(timedelta(seconds=1)), _duration_text, _duration_schema]
RateWindow = Annotated[
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
HeartbeatTimeout = Annotated[
    timedelta,
    _bounded(timedelta(seconds=5), timedelta(hours=1)),
    _duration_text,
    _duration_schema,
]
MaxDelegation = Annotated[
    timedelta,
    _bounded(timedelta(seconds=5), timedelta(days=30)),
    _duration_text,
    _duration_schema,
]
Instant = Annotated[
    datetime,
    BeforeValidator(parse_instant),
    PlainSerializer(instant_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
DelayedInstant = Annotated[
    datetime,
    BeforeValidator(parse_delayed_instant),
    PlainSerializer(instant_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Bound = Annotated[
    datetime | date,
    BeforeValidator(parse_bound),
    PlainSerializer(bound_text, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "format": f} for f in ("date-time", "date")]}),
]

# A view rounds the durations of older releases, too.
Milliseconds: TypeAlias = Annotated[float, AfterValidator(rounded_ms)]
Json: TypeAlias = Any  # a decoded JSON value: str, int, float, bool, None, list, dict
CheckedJson = Annotated[Any, BeforeValidator(check_json)]
Text = Annotated[str, BeforeValidator(check_json)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=256)]
_NAME: Final = text_of_form(
    r"^[a-z0-9][a-z0-9_-]{0,62}$",
    "have 1 to 63 lower-case letters, digits, _ and -, and begin with a letter or digit",
)
TIME_OF_DAY: Final = text_of_form(
    r"^([01]\d|2[0-3]):[0-5]\d$", "be a time of day in the form 22:30"
)
Tenant = Annotated[str, _NAME]
PoolName = Annotated[str, _NAME]
Tag = Annotated[ShortText, StringConstraints(max_length=64)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT, strict=True)]
