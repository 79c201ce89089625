"""Fingerprints: the properties that define the failure group of a dead letter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from harebell.contract.downstream import downstream_of_json
from harebell.contract.ids import failure_group_id

MAX_MESSAGE_LENGTH: Final = 200  # characters of a normalised message
MAX_TARGET_LENGTH: Final = 200  # characters of a target name
_PORTS: Final = {"http": 80, "https": 443, "amqp": 5672, "amqps": 5671}
MAX_ERROR_READ: Final = 1024  # characters of an error that the normalisation reads

# The first alternative that matches wins, so each pattern that contains digits precedes `n`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The identity of a failure group: dead letters of one group have equal fingerprints."""

    tenant: str
    target: str
    error_code: str
    message: str

    @property
    def group_id(self) -> UUID:
        return failure_group_id(
            self.tenant, self.target, error_code=self.error_code, message=self.message
        )


def fingerprint(
    tenant: str, payload: Mapping[str, Any], *, error_code: str, error: str | None
) -> Fingerprint:
    """Return the fingerprint with the target of a dead run, or the queue of a dead message."""
    target = payload.get("target")
    name = target_name(target) if isinstance(target, Mapping) else f"queue {payload.get('queue')}"
    return Fingerprint(
        tenant=tenant,
        target=name[:MAX_TARGET_LENGTH],
        error_code=error_code,
        message=normalise_message(error or ""),
    )


def target_name(target: Mapping[str, Any]) -> str:
    """Return the name of a target without the parts that vary between calls."""
    match target:
        case {"http": {"url": str(), **http}}:
            return f"http {http.get('method', 'POST')} {downstream_of_json(target)}"
        case {"amqp": {**amqp}}:
            key = normalise_message(str(amqp.get("routing_key", "")))
            return f"amqp {amqp.get('exchange', '')} {key}".rstrip()
        case {"task": {"name": str(name)}}:
            return f"task {name}"
        case _:
            return f"target {' '.join(sorted(target))}"


def normalise_message(text: str) -> str:
    """Return the text in one line, without numbers, ids, quoted texts and paths of URLs.

    The result has at most `MAX_MESSAGE_LENGTH` characters.
    """
    normal = _VARYING.sub(_placeholder, text[:MAX_ERROR_READ])
    return " ".join(normal.split())[:MAX_MESSAGE_LENGTH]


def origin_of(url: str) -> str:
    """Return the scheme, the host and the port of a URL, or `<url>` if the URL is malformed."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "<url>"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _placeholder(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    return origin_of(match.group()) if kind == "url" else f"<{kind}>"
