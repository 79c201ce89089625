"""The beat entries of a Celery application and the manifests that they become (pure).

A manifest publishes a message of version 2 of the protocol of Celery.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from harebell.cli.imports.conversion import MAX_NAME, Conversion
from harebell.contract.errors import InvalidCron
from harebell.contract.message import Message, empty_default
from harebell.contract.types import duration_text
from harebell.domain.cron.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field
from harebell.domain.cron.parser import parse as parse_cron

TAG: Final = "celery"
JSON: Final = "json"  # the serializer that a body of Harebell has
DEFAULT_SCHEDULER: Final = "celery.beat:PersistentScheduler"
MIN_INTERVAL: Final = 1.0  # seconds
MAX_ARGUMENTS_TEXT: Final = 1024  # characters, as in Celery

_RUN_ID: Final = {"run": "id"}
_NO_CALLBACKS: Final = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
_CARRIED: Final = {"queue", "exchange", "routing_key", "priority", "expires", "delivery_mode"}
_COLUMNS: Final[dict[str, Field]] = {
    "minute": MINUTE,
    "hour": HOUR,
    "day_of_month": DAY,
    "month_of_year": MONTH,
    "day_of_week": WEEKDAY,
}


class BeatRoute(Message):
    """The exchange and the routing key of a task."""

    exchange: str
    routing_key: str
    priority: int | None = None


class BeatTimes(Message):
    """The schedule of an entry: `crontab`, `interval`, or another kind with its text.

    A field of a crontab has its text and its values.
    """

    kind: str
    fields: dict[str, tuple[str, list[int]]] = empty_default(dict)
    timezone: str | None = None
    seconds: float = 0.0
    relative: bool = False
    text: str = ""


class BeatEntry(Message):
    """One entry of `beat_schedule`. `arguments` is None if JSON does not represent them."""

    name: str
    task: str
    schedule: BeatTimes
    arguments: list[Any] | None
    serializer: str
    route: BeatRoute
    options: dict[str, Any]


class BeatDocument(Message):
    """The beat entries of one application, as `celery_probe` writes them."""

    timezone: str
    scheduler: str
    entries: list[BeatEntry]


def convert_beat(document: BeatDocument, *, key_prefix: str, now: datetime) -> Conversion:
    """Return the manifests of the entries."""
    conversion = Conversion(now=now)
    if document.scheduler != DEFAULT_SCHEDULER:
        text = f"The entries of the scheduler {document.scheduler} are not carried over."
        conversion.remark("beat_scheduler", text)
    for entry in document.entries:
        source = f"The entry {entry.name!r}"
        if entry.arguments is None or entry.serializer != JSON:
            found = (
                f"the serializer {entry.serializer}" if entry.serializer != JSON else "arguments"
            )
            conversion.omit(source, f"a manifest contains JSON only, and the entry has {found}")
            continue
        when = _when(conversion, source, entry, timezone=document.timezone)
        if when is None:
            continue
        if not entry.route.exchange:
            conversion.omit(source, "its queue has no exchange, and a target needs one")
            continue
        target = {"amqp": _message(conversion, source, entry)}
        conversion.add(
            source,
            {
                "key": f"{key_prefix}{entry.name}"[:MAX_NAME],
                "when": when,
                "target": target,
                "tags": [TAG],
            },
        )
    return conversion


def _when(
    conversion: Conversion, source: str, entry: BeatEntry, *, timezone: str
) -> dict[str, Any] | None:
    """Return the rule of an entry, or None after a sentence about the reason."""
    times = entry.schedule
    if times.kind == "interval":
        if times.seconds < MIN_INTERVAL:
            reason = f"an interval must be at least 1 s, and the entry has {times.seconds:g} s"
            conversion.omit(source, reason)
            return None
        if times.relative:
            conversion.remark(source, "The option relative is not carried over.")
        return {"every": duration_text(timedelta(seconds=times.seconds))}
    if times.kind != "crontab":
        conversion.omit(source, f"it has the schedule {times.text or times.kind}")
        return None
    columns = {name: _column(*times.fields[name], of) for name, of in _COLUMNS.items()}
    if columns["day_of_month"] != "*" and columns["day_of_week"] != "*":
        reason = "Celery requires both day_of_month and day_of_week, and cron one of them"
        conversion.omit(source, reason)
        return None
    rule = {"cron": " ".join(columns.values())}
    zone = times.timezone or timezone
    return rule if zone == "UTC" else {**rule, "timezone": zone}


def _column(text: str, numbers: list[int], of: Field) -> str:
    """Return the text of a field if Harebell reads the same values, and the values otherwise."""
    listed = "*" if numbers == [*of.all] else ",".join(map(str, numbers))
    return text if _values(text, of) == _values(listed, of) else listed


def _values(column: str, of: Field) -> str | None:
    index = list(_COLUMNS.values()).index(of)
    words = ["*"] * len(_COLUMNS)
    words[index] = column
    try:
        return parse_cron(" ".join(words), None).text.split()[index]
    except InvalidCron:
        return None


def _message(conversion: Conversion, source: str, entry: BeatEntry) -> dict[str, Any]:
    args, kwargs = entry.arguments or ([], {})
    message: dict[str, Any] = {
        "exchange": entry.route.exchange,
        "routing_key": entry.route.routing_key,
        "json": [args, kwargs, _NO_CALLBACKS],
        "headers": {
            "lang": "py",
            "task": entry.task,
            "id": _RUN_ID,
            "root_id": _RUN_ID,
            "retries": 0,
            "origin": "harebell",
            "argsrepr": repr(tuple(args))[:MAX_ARGUMENTS_TEXT],
            "kwargsrepr": repr(kwargs)[:MAX_ARGUMENTS_TEXT],
        },
        "correlation_id": _RUN_ID,
        "content_encoding": "utf-8",
    }
    priority = entry.options.get("priority", entry.route.priority)
    if isinstance(priority, int):
        message["priority"] = priority
    expires = entry.options.get("expires")
    if isinstance(expires, int | float) and expires > 0:
        message["expiration"] = duration_text(timedelta(seconds=expires))
        conversion.remark(source, "RabbitMQ drops an expired message, and no worker records it.")
    elif expires is not None:
        conversion.remark(source, f"The option expires={expires!r} is not carried over.")
    for name in sorted(entry.options.keys() - _CARRIED):
        conversion.remark(source, f"The option {name} is not carried over.")
    return message
