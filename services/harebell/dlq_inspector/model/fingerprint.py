"""What two failures have in common when they are the same: target, error code, normal message."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from harebell.contract.ids import failure_group_id

MAX_MESSAGE: Final = 200  # characters of a normal message
MAX_TARGET: Final = 200  # characters of a target's name
MAX_READ: Final = 1024  # characters of an error that are looked at

# The first that matches wins, so what holds digits comes before digits.
_VARYING: Final = re.compile(
    r"""
    (?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s'"<>]+)
    |(?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)
    |(?P<text>"[^"]*"|'[^']*'(?![a-z])|`[^`]*`)
    |(?P<hex>\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b)
    |(?P<n>[0-9]+(?:[.,:][0-9]+)*)
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for failures of one kind."""

    tenant: str
    target: str
    error_code: str
    message: str

    @property
    def group(self) -> UUID:
        return failure_group_id(self.tenant, self.target, self.error_code, self.message)


def fingerprint(
    tenant: str, story: Mapping[str, Any], error_code: str, error: str | None
) -> Fingerprint:
    """Of a dead run by its target, of a message by the queue that it died in."""
    target = story.get("target")
    name = named_target(target) if isinstance(target, Mapping) else f"queue {story.get('queue')}"
    return Fingerprint(tenant, name[:MAX_TARGET], error_code, normal_message(error or ""))


def named_target(target: Mapping[str, Any]) -> str:
    """Whom a run called, without what differs from call to call."""
    match target:
        case {"http": {"url": str(url), **http}}:
            return f"http {http.get('method', 'POST')} {host_of(url)}"
        case {"amqp": {**amqp}}:
            key = normal_message(str(amqp.get("routing_key", "")))
            return f"amqp {amqp.get('exchange', '')} {key}".rstrip()
        case {"task": {"name": str(name)}}:
            return f"task {name}"
        case _:
            return f"target {' '.join(sorted(target))}"


def normal_message(text: str) -> str:
    """Without numbers, ids, quoted texts and the paths of URLs; in one line, of bounded length."""
    normal = _VARYING.sub(_placeholder, text[:MAX_READ])
    return " ".join(normal.split())[:MAX_MESSAGE]


def host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "<url>"
    return f"{parts.scheme}://{parts.hostname or ''}"


def _placeholder(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    return host_of(match.group()) if kind == "url" else f"<{kind}>"
