"""The page of the fields of a schedule, from the JSON Schema of `schedule.put`.

The schema contains forms and bounds, and `MEANINGS` the meaning of each field.
"""

import json
from pathlib import Path
from typing import Any, Final

from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, codes, prose, sentences_on_lines, table

SCHEMA: Final = Path(__file__).parents[3] / "schemas" / "jsonschema" / "schedule.put.v1.json"
DURATION: Final = "30s, 5m, 24h or ISO 8601: PT30S"

MEANINGS: Final = {
    # the command
    "tenant": "The tenant, which must be the first word of the routing key.",
    "request_id": "Identifies the command, so that a repeat gets the first response.",
    "expected_version": "The version that the command replaces, or `any`.",
    "effective_at": "The time at which the version comes into force.",
    "revive": "Starts an ended schedule again.",
    "note": "A note for the history of the schedule.",
    # the schedule
    "key": "Your name of the schedule, unique in the tenant.",
    "name": "A name for people and filters.",
    "owner": "The team or service that the schedule belongs to.",
    "class": "With `critical`, another executor takes over a lost run sooner.",
    "priority": "The urgency of the runs. A larger number is more urgent.",
    "pool": "The pool of executors.",
    "when": "The times of the runs.",
    "calendars": "The [calendars](../guides/calendars.md) that exclude or include scheduled times.",
    "pinned_calendars": "The content of the calendars in force. Only Harebell sets it.",
    "target": "The call of each attempt.",
    "timeout": "The maximum duration of one attempt.",
    "expires_after": "A run that has not started this long after its scheduled time expires.",
    "retry": "The number of attempts and the waits between them.",
    "catch_up": "The policy for missed scheduled times.",
    "on_unknown": "The policy for an attempt with an unknown outcome.",
    "overlap": "The policy for a run that is due while another run is unfinished.",
    "concurrency": "The maximum number of runs with one label that execute at once.",
    "rate_limit": "The maximum number of starts within a time window.",
    "pause_after_failures": "The number of consecutive failed runs that pauses the schedule.",
    "tags": "Words for filters.",
    "metadata": "Your own JSON object, which Harebell stores and returns.",
    "sign": "The names of the secrets whose keys sign the calls.",
    # when
    "now": "One run at once.",
    "at": "One run at this instant.",
    "after": "One run after this duration.",
    "every": "Runs at this interval.",
    "cron": "Runs at the times of this [cron expression](../architecture/cron.md).",
    "any_of": "Runs at every instant of any of these rules, once.",
    "jitter": "Delays each run by a fraction of this duration.",
    "timezone": "The time zone of local times (IANA name).",
    "exclude": "The names of calendars. A time within one of them gets no run.",
    "include": "The names of calendars. Only a time within one of them gets a run.",
    "on_excluded": "The treatment of excluded times. `next` and `previous` move them.",
    "open_day": "The open day of each month with runs. 1 is the first one, -1 the last one.",
    "days": "Days and ranges of days.",
    "weekly": "Hours that repeat each week.",
    "weekdays": "The weekdays.",
    "to": "The local time of day at which the hours end.",
    "version": "The version of the calendar.",
    "start": "The first time at which a run may be scheduled.",
    "end": "The last time at which a run may be scheduled. A date includes its whole day.",
    "times": "The number of runs after which the schedule is completed.",
    "until": "Completes the schedule after its first successful run.",
    "day_match": "The day fields that must match if both are restricted: `either` or `both`.",
    "dst_gap": "The rule for a local time that a clock change skips.",
    "dst_overlap": "The rule for a local time that a clock change repeats.",
    "from": "With `completion`, each interval begins when the previous run ends.",
    "phase": "With `spread`, the schedule id determines the phase of the interval.",
    # targets
    "http": "An HTTP request.",
    "amqp": "An AMQP message.",
    "task": "A Python function of an executor.",
    "method": "The HTTP method.",
    "url": "The URL, without user information.",
    "headers": "The headers. A value may be a reference to a secret.",
    "userinfo": "The user and the password of Basic authentication.",
    "user": "The user.",
    "password": "The password.",
    "follow_redirects": "Follows redirects to permitted addresses.",
    "json": "The body as JSON.",
    "text": "The body as text.",
    "base64": "The body as base64.",
    "completion": "With `worker`, the accepted call delegates the run to a worker.",
    "heartbeat": "The longest time between two heartbeats of the worker.",
    "max_duration": "The longest time from the start of a delegated run to its completion.",
    "exchange": "The exchange, which must exist.",
    "routing_key": "The routing key.",
    "type": "The property `type`.",
    "correlation_id": "The property `correlation_id`, which may refer to the id of the run.",
    "reply_to": "The property `reply_to`.",
    "expiration": "The time after which the broker drops the message from a queue.",
    "message_id": "The property `message_id`. The default is the id of the run.",
    "app_id": "The property `app_id`. The default is the name of Harebell.",
    "content_type": "The property `content_type`. The default is that of the body.",
    "content_encoding": "The property `content_encoding`.",
    "timestamp": "A time. RabbitMQ stores whole seconds.",
    "absent_properties": "With `omit`, the content type and `app_id` have no default.",
    "run": "The value `id`, which the executor replaces by the id of the run.",
    "args": "The argument of the function, a JSON object.",
    "secret": "The name of a secret of the tenant.",
    # policies
    "max_attempts": "The maximum number of attempts, with the first one.",
    "backoff": "The waits between attempts.",
    "base": "The wait after the first attempt.",
    "factor": "The factor from one wait to the next.",
    "cap": "The longest wait.",
    "mode": "The missed times that get a run: none, the latest one, or all.",
    "window": "The greatest age of a missed time that gets a run.",
    "max": "The maximum number of runs for missed times.",
    "not_after": "The local time of day after which no missed time gets a run.",
    "per": "The runs that the limit counts together.",
    "label": "The name that the runs share, with 1 to 128 characters.",
    "limit": "The number of runs, 1 to 1,000.",
    "starts": "The maximum number of starts within the window.",
    "within": "The window.",
}
# A field whose meaning depends on its object.
MEANINGS_IN: Final = {
    ("Backoff", "jitter"): "The random part of each wait.",
    ("ScheduleCalendars", "blackout"): "The calendars within which no attempt starts, at most 2.",
    ("WeeklyHours", "from"): "The local time of day at which the hours begin.",
    ("PinnedCalendar", "name"): "The name of the calendar.",
    ("TaskCall", "name"): "The name of the function.",
}
ORDER: Final = (
    "Now",
    "At",
    "After",
    "Every",
    "CronRule",
    "AnyOf",
    "HttpTarget",
    "HttpCall",
    "UserInfo",
    "AmqpTarget",
    "AmqpMessage",
    "TaskTarget",
    "TaskCall",
    "SecretRef",
    "RetryPolicy",
    "Backoff",
    "CatchUp",
    "RateLimit",
    "Concurrency",
    "ScheduleCalendars",
    "PinnedCalendar",
    "WeeklyHours",
)


def page() -> str:
    """Return the page."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    objects = schema["$defs"]
    intro = (
        "These are the fields of the command `schedule.put`.\n"
        "If you misspell one, you get an error that names it.\n"
        "Write a duration as `30s`, `5m`, `24h` or `PT30S`, and an instant with its offset.\n"
        "What is behind the fields is on the page [contract](../architecture/contract.md)."
    )
    parts = [intro, "## The schedule", _table("", schema)]
    rest = [name for name in objects if name not in ORDER and "properties" in objects[name]]
    for name in (*(each for each in ORDER if each in objects), *rest):
        found = objects[name]
        text = sentences_on_lines(found.get("description", ""))
        parts += [f"## {name}", text, _table(name, found)]
    enums = [(name, found) for name, found in objects.items() if "enum" in found]
    parts += [
        "## Closed sets",
        table(
            ("set", "values", "meaning"),
            [
                (name, codes(found["enum"]), prose(found.get("description", "")))
                for name, found in enums
            ],
        ),
    ]
    return markdown.page("Fields of a schedule", *parts)


def _table(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        (
            code(field),
            _form(found),
            "required" if field in required else _default(found),
            _meaning(name, field),
        )
        for field, found in schema["properties"].items()
    ]
    return table(("field", "form", "default", "meaning"), rows)


def _meaning(name: str, field: str) -> str:
    found = MEANINGS_IN.get((name, field)) or MEANINGS.get(field)
    if found is None:
        raise ValueError(f"Add the meaning of the field {field!r} of {name!r} to {__file__}.")
    return found


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return (
        ""
        if value in (None, [], {})
        else code(value if isinstance(value, str) else json.dumps(value))
    )


def _form(schema: dict[str, Any]) -> str:
    """Return the form of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in ORDER else f"[{name}](#closed-sets)"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            forms = [_form(each) for each in schema[union] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(each for each in forms if each)) or "any JSON"
    if schema.get("description") == DURATION:
        return "duration"
    if "const" in schema:
        return code(json.dumps(schema["const"]).strip('"'))
    if "enum" in schema:
        return codes(schema["enum"])
    return _plain_form(schema)


def _plain_form(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "integer" | "number" as kind:
            form = _number("whole number" if kind == "integer" else "number", schema)
        case "string":
            form = _text(schema)
        case "array":
            bound = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
            form = f"list of {_form(schema['items'])}{bound}"
        case "object":
            fields = schema.get("maxProperties")
            form = f"object, at most {fields} fields" if fields else "object"
        case "boolean":
            form = "`true` or `false`"
        case _:
            form = ""
    return form


def _number(words: str, schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is None or low < 0:
        return words
    return f"{words}, at least {low}" if high is None else f"{words}, {low} to {high}"


def _text(schema: dict[str, Any]) -> str:
    if schema.get("format") in {"date-time", "date"}:
        return "instant" if schema["format"] == "date-time" else "date"
    if "maxLength" in schema:
        return f"text, at most {schema['maxLength']} characters"
    return code(schema["pattern"]) if "pattern" in schema else "text"
