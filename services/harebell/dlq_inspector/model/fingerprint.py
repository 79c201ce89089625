"""Fingerprints: the properties that define the failure group of a dead letter."""

import re
from collections.abc import Iterator, Mapping
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

# The first alternative that matches wins.
_VARYING: Final = re.compile(
    r"""
    (?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s'"<>]+)
    |(?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)
    |(?P<time>\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?
       (?:Z|[+-][0-9]{2}:?[0-9]{2})?\b)
    |(?P<text>"[^"]*"|'[^']*'(?![a-z])|`[^`]*`)
    |(?P<n>[0-9]+(?:[.,:][0-9]+)+)
    |(?P<word>[-_]*[a-z0-9]+(?:[-_]+[a-z0-9]+)*[-_]*)
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_PLACEHOLDER: Final = "<n>"  # of a number or of a random id
_DIGITS: Final = re.compile(r"[0-9]+")
_QUANTITY: Final = re.compile(
    r"[0-9]{1,6}(ns|us|ms|s|secs?|m|mins?|h|hrs?|d|b|[kmg]i?b?|st|nd|rd|th|x|[ap]m)", re.IGNORECASE
)
# Between two letters of a word such as `ReadTimeout`, a small letter precedes a capital once.
_CASE_CHANGE: Final = re.compile(r"[a-z](?=[A-Z])")
# Letters that a person would write, such as `timeout`, `IO` or `ReadTimeout`.
_WORD: Final = re.compile(r"[a-z]+|[A-Z]+|[A-Z]?[a-z]{2,}(?:[A-Z]+[a-z]{2,})*")
MIN_ID: Final = 4  # characters with digits and letters; a shorter part keeps its letters
MAX_PREFIX: Final = 3  # letters beside an id that may belong to it


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
    kind, text = match.lastgroup or "", match.group()
    if kind == "word":
        return _without_ids(text)
    return origin_of(text) if kind == "url" else f"<{kind}>"


def _without_ids(word: str) -> str:
    """Return parts that hyphens or underscores join, without numbers and random ids.

    The short parts beside an id belong to it, because the alphabet of some ids has these signs.
    """
    parts = re.split("([-_])", word)
    normal: list[str] = []
    for texts in _runs(parts):
        is_id = any(map(_is_id, texts))
        normal.append(_PLACEHOLDER if is_id else "".join(map(_without_number, texts)))
    return "".join(normal)


def _runs(parts: list[str]) -> Iterator[list[str]]:
    """Yield the parts, those which may be of one id together. Every second part is a sign.

    The sign between a word and an id belongs to neither.
    """
    run: list[str] = []
    is_after_word = False
    for part in parts:
        if is_after_word:
            yield [part]
            is_after_word = False
        elif len(part) <= MAX_PREFIX or not _WORD.fullmatch(part) or _is_id(part):
            run.append(part)
        else:
            yield run[:-1]
            yield [*run[-1:], part]
            run, is_after_word = [], True
    yield run


def _is_id(part: str) -> bool:
    """Return whether a part looks random: letters and digits, or letters of a changing case."""
    if part.isdigit() or _QUANTITY.fullmatch(part):
        return False
    if part.isalpha():
        changes = len(_CASE_CHANGE.findall(part))
        return changes > 1 and changes * 4 >= len(part)
    return len(part) >= MIN_ID and part not in {"-", "_"}


def _without_number(part: str) -> str:
    return _DIGITS.sub(_PLACEHOLDER, part)
