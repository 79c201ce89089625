"""Literal secrets in targets: where they are, and their redaction (pure).

A literal secret is the value of a header that usually contains a secret, or the user information
of a URL. No function of this module checks the form of a target, because the targets of old
versions and of dead letters may have any form.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from harebell.contract.errors import InvalidInput

REDACTED: Final = "***"
REDACTED_CODE: Final = "redacted_value"  # of a value that a view has replaced

_NAMES: Final = frozenset({"authorization", "cookie"})
_PREFIX: Final = "proxy-"
_TYPES_OF_HEADERS: Final = frozenset({"json", "base64", "timestamp"})
_SUFFIXES: Final = ("-key", "-token")
_PARTS_OF_USERINFO: Final = ("user", "password")
_URL_USERINFO: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)@")
_HEADERS_IN_BYTES: Final = r"authorization|cookie|proxy-[^\"\s]*|[^\"\s]*-key|[^\"\s]*-token"
# A name with its text in JSON that may be cut or invalid, and a URL with user information.
_FIELD_IN_BYTES: Final = re.compile(
    rb'("(?:' + _HEADERS_IN_BYTES.encode() + rb'|user|password)"\s*:\s*")((?:[^"\\]|\\.)*)',
    re.IGNORECASE,
)
_URL_IN_BYTES: Final = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]{0,15}://)([^/?#\s\"]{1,1024})@")

# Receives the field and the literal secret. Returns the value that replaces the literal.
ReplaceLiteral: TypeAlias = Callable[[str, Any], Any]


@lru_cache(4096)  # a few names occur in most targets
def is_secret_header(name: str) -> bool:
    """Return whether a header of this name usually contains a secret."""
    lower = name.lower()
    return lower in _NAMES or lower.startswith(_PREFIX) or lower.endswith(_SUFFIXES)


def replace_literals(target: Any, replace: ReplaceLiteral) -> Any:  # noqa: ANN401  # JSON
    """Return a target in JSON with every literal secret replaced.

    A target without literal secrets is returned unchanged.
    """
    if not isinstance(target, Mapping):
        return target
    changes = {
        kind: _replace_in_call(target[kind], kind, replace)
        for kind in ("http", "amqp")
        if isinstance(target.get(kind), Mapping)
    }
    changes = {kind: call for kind, call in changes.items() if call is not target[kind]}
    return {**target, **changes} if changes else target


def _replace_in_call(call: Mapping[str, Any], path: str, replace: ReplaceLiteral) -> Any:  # noqa: ANN401  # JSON
    changes: dict[str, Any] = {}
    headers, url, userinfo = call.get("headers"), call.get("url"), call.get("userinfo")
    if isinstance(headers, Mapping):
        secret = {
            name: replace(f"{path}.headers.{name}", value)
            for name, value in headers.items()
            if is_secret_header(name) and _is_literal(value)
        }
        if secret:
            changes["headers"] = {**headers, **secret}
    if isinstance(userinfo, Mapping):
        parts = {
            part: replace(f"{path}.userinfo.{part}", userinfo[part])
            for part in _PARTS_OF_USERINFO
            if _is_literal(userinfo.get(part))
        }
        if parts:
            changes["userinfo"] = {**userinfo, **parts}
    if isinstance(url, str) and (found := _URL_USERINFO.match(url)) is not None and found[2]:
        value = replace(f"{path}.url", found[2])
        changes["url"] = f"{found[1]}{value}@{url[found.end() :]}"
    return {**call, **changes} if changes else call


def _is_literal(value: object) -> bool:
    """Return whether the value is text or typed, and no reference such as `{"secret": "name"}`."""
    if isinstance(value, Mapping):
        return not _TYPES_OF_HEADERS.isdisjoint(value)
    return value is not None


def literals_of(target: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """Return the literal secrets of a target by their fields. `***` is one of them."""
    found: dict[str, Any] = {}

    def collect(field: str, value: Any) -> Any:  # noqa: ANN401  # JSON
        found[field] = value
        return value

    replace_literals(target, collect)
    return found


def redact_target(target: Any) -> Any:  # noqa: ANN401  # JSON
    """Return the target with `***` for each literal secret."""
    return replace_literals(target, lambda _, __: REDACTED)


def redact_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition with `***` for each literal secret of its target."""
    if "target" not in definition:
        return dict(definition)
    return {**definition, "target": redact_target(definition["target"])}


def redacted_fields(target: Any) -> list[str]:  # noqa: ANN401  # JSON
    """Return the fields whose value is `***`, which a redaction has written."""
    return [field for field, value in literals_of(target).items() if value == REDACTED]


def refuse_redacted(target: Any, field: str) -> None:  # noqa: ANN401  # JSON
    """Raise `InvalidInput` for a target with a redacted value, which would replace the secret."""
    if fields := redacted_fields(target):
        reason = f"The value must be a secret or a reference, not {REDACTED}, which hides a value."
        raise InvalidInput(reason, field=f"{field}.{fields[0]}", code=REDACTED_CODE)


def restore_literals(target: Any, original: Any, field: str) -> Any:  # noqa: ANN401  # JSON
    """Return the target with the literal secrets of `original` instead of `***`.

    Raise `InvalidInput` for `***` in a field that has no literal secret in `original`.
    """
    known = literals_of(original)

    def restore(name: str, value: Any) -> Any:  # noqa: ANN401  # JSON
        if value != REDACTED:
            return value
        if known.get(name, REDACTED) == REDACTED:
            reason = f"The value must not be {REDACTED}, because the original has no such value."
            raise InvalidInput(reason, field=f"{field}.{name}", code=REDACTED_CODE)
        return known[name]

    return replace_literals(target, restore)


def redact_bytes(body: bytes) -> bytes:
    """Return the body of a message with `***` for each text that looks like a literal secret.

    The body may be cut or invalid, so the function compares texts and parses nothing.
    """
    fields = _FIELD_IN_BYTES.sub(rb"\1***", body)
    return _URL_IN_BYTES.sub(rb"\1***@", fields)


def hides_input(loc: Sequence[int | str], value: object) -> bool:
    """Return whether an error at this location must not quote the value, which may be a secret."""
    names = [str(part).lower() for part in loc]
    if "userinfo" in names:
        return True
    if "headers" in names:
        return any(map(is_secret_header, names)) or names[-1] == "headers"
    return names[-1:] == ["url"] and "@" in str(value)
