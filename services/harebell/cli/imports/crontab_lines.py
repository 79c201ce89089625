"""The lines of a crontab and the manifests that they become (pure)."""

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from harebell.cli.imports.conversion import MAX_NAME, Conversion

MAX_LINES: Final = 10_000
KEY_HASH: Final = 12  # characters; 10,000 lines share one with a chance below 1 in a million
TAG: Final = "crontab"

_ENVIRONMENT: Final = re.compile(r"""(?P<name>[A-Za-z_]\w*|"[^"]+"|'[^']+')\s*=\s*(?P<value>.*)""")
_FIELD: Final = re.compile(r"(\*|\d+)([-/,~]?\d+|/\d+|,|-)*")  # of a time, in any position
_RANDOM: Final = re.compile(r"(?<![\w~])(\d+)~(\d+)(?![\w~])")
_OPEN_RANDOM: Final = re.compile(r"(^|,)~($|,)")
_PERCENT: Final = re.compile(r"(?<!\\)%")
_FIELDS: Final = 5
_DAY, _WEEKDAY = 2, 4  # the positions of the day fields
_REBOOT: Final = "@reboot"
_ZONE: Final = "CRON_TZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabOptions:
    """The facts that a crontab does not contain.

    `has_users`: each line names a user before the command, as in `/etc/crontab`. `task` is the task
    that executes a command.
    """

    timezone: str
    task: str
    has_users: bool = False
    key_prefix: str = "crontab."


def convert_crontab(text: str, options: CrontabOptions, *, now: datetime) -> Conversion:
    """Return the manifests of a crontab with at most `MAX_LINES` lines."""
    conversion = Conversion(now=now)
    zone, keys = options.timezone, dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        source, content = f"Line {number}", line.strip(" \t")
        if not content or content.startswith("#"):
            continue
        if found := _ENVIRONMENT.fullmatch(content):
            if found["name"].strip("\"'") == _ZONE:
                zone = found["value"].strip("\"' \t")
                conversion.remark(source, f"The following times are in the time zone {zone}.")
            else:
                conversion.remark(source, f"The variable {found['name']} is not carried over.")
            continue
        _convert_line(conversion, source, content, zone=zone, options=options, keys=keys)
    return conversion


def _convert_line(
    conversion: Conversion,
    source: str,
    line: str,
    *,
    zone: str,
    options: CrontabOptions,
    keys: dict[str, int],
) -> None:
    split = line.split(None, 1 if line.startswith("@") else _FIELDS)
    times, rest = split[: 1 if line.startswith("@") else _FIELDS], split[len(split) - 1]
    if len(split) <= len(times):
        conversion.omit(source, "the line has no command after the times")
        return
    if times[0].lower() == _REBOOT:
        conversion.omit(source, "a service has no boot that @reboot could follow")
        return
    if options.has_users:
        user, _, rest = rest.partition(" ") if " " in rest else rest.partition("\t")
        conversion.remark(source, f"The user {user} is not carried over.")
        rest = rest.strip(" \t")
    elif not line.startswith("@") and _FIELD.fullmatch(rest.split()[0]):
        conversion.omit(source, "the line has six time fields, and a crontab has no seconds")
        return
    if not rest:
        conversion.omit(source, "the line has no command after the user")
        return
    expression = _expression(conversion, source, times)
    command, *data = _PERCENT.split(rest)
    arguments = {"command": command.replace("\\%", "%").strip(" \t")}
    if data:
        arguments["stdin"] = "".join(f"{each}\n" for each in data).replace("\\%", "%")
    conversion.add(
        source,
        {
            "key": _key(f"{zone} {expression} {rest}", options.key_prefix, keys),
            "name": arguments["command"][:MAX_NAME],
            "when": _when(expression, zone),
            "target": {"task": {"name": options.task, "args": arguments}},
            "tags": [TAG],
        },
    )


def _expression(conversion: Conversion, source: str, times: list[str]) -> str:
    """Return the expression of Harebell for the time fields of cron."""
    expression = _RANDOM.sub(r"H(\1-\2)", " ".join(times))
    expression = " ".join(_OPEN_RANDOM.sub(r"\1H\2", each) for each in expression.split())
    if "H" in expression and "~" in "".join(times):
        text = "The random value ~ becomes H, which the schedule id determines."
        conversion.remark(source, text)
    starred = [len(times) == _FIELDS and times[each].startswith("*/") for each in (_DAY, _WEEKDAY)]
    if any(starred) and "*" not in (times[_DAY], times[_WEEKDAY]):
        text = "Debian's cron requires both day fields here, and Harebell one of them."
        conversion.remark(source, text)
    return expression.lower() if expression.startswith("@") else expression


def _when(expression: str, zone: str) -> dict[str, Any]:
    return {"cron": expression} if zone == "UTC" else {"cron": expression, "timezone": zone}


def _key(text: str, prefix: str, keys: dict[str, int]) -> str:
    """Return a key that depends on the line and not on its position. Equal lines are counted."""
    key = prefix + sha256(text.encode()).hexdigest()[:KEY_HASH]
    keys[key] = count = keys.get(key, 0) + 1
    return key if count == 1 else f"{key}-{count}"
