"""The program that writes the beat entries of a Celery application to stdout, as JSON.

The Python interpreter of the application runs this file as a program, so the file needs only the
standard library and Celery, and imports nothing of Harebell.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

OfCelery: TypeAlias = Any  # Celery has no types

_CRONTAB_FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_STDOUT, _STDERR = 1, 2  # file descriptors


def main(reference: str, output: IO[str]) -> None:
    """Write the application `module:name` to the file object `output`."""
    # The folder of this file has a module `celery`, which must not hide the package.
    sys.path[0] = str(Path.cwd())
    app = _load(reference)
    app.finalize(auto=True)
    entries = app.conf.beat_schedule or {}
    timezone = app.conf.timezone or "UTC"
    document = {
        "timezone": str(timezone),
        "scheduler": str(app.conf.beat_scheduler),
        "entries": [_entry(app, str(name), each) for name, each in entries.items()],
    }
    output.write(json.dumps(document))


def _load(reference: str) -> OfCelery:
    module_name, _, attribute = reference.partition(":")
    module = importlib.import_module(module_name)
    for name in [attribute] if attribute else ["app", "celery"]:
        if hasattr(module, name):
            return getattr(module, name)
    raise SystemExit(f"The module {module_name} has no Celery application named {attribute!r}.")


def _entry(app: OfCelery, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    task = app.tasks.get(entry["task"])
    options = {} if task is None else dict(task._get_exec_options())  # noqa: SLF001  # the options that beat uses
    options.update(entry.get("options") or {})
    options = {key: value for key, value in options.items() if value is not None}
    args, kwargs = list(entry.get("args") or ()), dict(entry.get("kwargs") or {})
    return {
        "name": name,
        "task": entry["task"],
        "schedule": _schedule(entry["schedule"]),
        "arguments": _as_json([args, kwargs]),
        "serializer": str(options.pop("serializer", app.conf.task_serializer)),
        "route": _route(app, entry["task"], arguments=(args, kwargs), options=options),
        "options": {key: _option(value) for key, value in options.items()},
    }


def _schedule(schedule: OfCelery) -> dict[str, Any]:
    kinds = importlib.import_module("celery.schedules")
    if isinstance(schedule, kinds.crontab):
        fields = {
            name: [str(getattr(schedule, "_orig_" + name)), sorted(getattr(schedule, name))]
            for name in _CRONTAB_FIELDS
        }
        return {"kind": "crontab", "fields": fields, "timezone": str(schedule.tz)}
    if type(schedule) is kinds.schedule:
        seconds = schedule.run_every.total_seconds()
        return {"kind": "interval", "seconds": seconds, "relative": bool(schedule.relative)}
    if isinstance(schedule, (int, float)):
        return {"kind": "interval", "seconds": float(schedule), "relative": False}
    if hasattr(schedule, "total_seconds"):
        return {"kind": "interval", "seconds": schedule.total_seconds(), "relative": False}
    return {"kind": type(schedule).__name__, "text": str(schedule)}


def _route(
    app: OfCelery,
    task: str,
    *,
    arguments: tuple[list[Any], dict[str, Any]],
    options: dict[str, Any],
) -> dict[str, Any]:
    """Return the exchange and the routing key that a producer of Celery uses."""
    route = app.amqp.router.route(dict(options), task, *arguments)
    queue = route.get("queue") or app.amqp.queues[app.conf.task_default_queue]
    if isinstance(queue, str):
        queue = app.amqp.queues[queue]
    exchange = route.get("exchange")
    exchange = getattr(exchange, "name", exchange) or getattr(queue.exchange, "name", "")
    return {
        "exchange": exchange or app.conf.task_default_exchange or "",
        "routing_key": route.get("routing_key") or queue.routing_key or queue.name,
        "priority": route.get("priority", app.conf.task_default_priority),
    }


def _as_json(value: OfCelery) -> OfCelery:
    """Return the value, or None if JSON does not represent it exactly."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return value if json.loads(text) == value else None


def _option(value: OfCelery) -> OfCelery:
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    return value if isinstance(value, (str, int, float, bool)) else str(value)


if __name__ == "__main__":
    # Imports of the application may print, so stdout leads to stderr until the result is complete.
    RESULT = os.fdopen(os.dup(_STDOUT), "w")
    os.dup2(_STDERR, _STDOUT)
    main(sys.argv[1], RESULT)
    RESULT.close()
