"""The name of a downstream: `acme.example:443`, `amqp:acme.jobs` or `task:acme.report`.

The name of a host always contains its port, because each port is a system of its own.
"""

import re
from functools import lru_cache
from typing import Any, Final, assert_never

from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget

UNKNOWN_DOWNSTREAM: Final = ""  # of a kind of target that this version does not know
MAX_DOWNSTREAM: Final = 255  # characters; a longer name is truncated, and a host keeps its port

_PORTS: Final = {"http": "80", "https": "443"}
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:]*)(:(?P<port>.*))?", re.DOTALL)
# Version 1 of the commands also accepted `http:` before the host, and hosts without a port.
_OLD_PREFIX: Final = "http:"
_MAX_PORT: Final = 65_535
_MAX_PORT_DIGITS: Final = 5


def downstream_of(target: Target) -> str:
    """Return the name of the downstream that a target calls."""
    match target:
        case HttpTarget(http=call):
            return _host(call.url)
        case AmqpTarget(amqp=message):
            return f"amqp:{message.exchange}"
        case TaskTarget(task=call):
            return f"task:{call.name}"
        case _:
            assert_never(target)


def downstream_of_json(target: Any) -> str:  # noqa: ANN401  # decoded JSON
    """Return the downstream of an unchecked target. The dispatcher calls this for every ticket."""
    try:
        ((kind, call),) = target.items()
        if kind == "http":
            return _host(call["url"])
        if kind == "task":
            return f"task:{call['name']}"
        return f"amqp:{call['exchange']}" if kind == "amqp" else UNKNOWN_DOWNSTREAM
    except (AttributeError, KeyError, TypeError, ValueError):
        return UNKNOWN_DOWNSTREAM


def is_downstream_name(name: str) -> bool:
    """Return whether a target can have a downstream with this name.

    The function also accepts the names of hosts that `current_name` converts or rejects.
    """
    kind, _, address = name.partition(":")
    if kind in {"amqp", "task"}:
        return bool(address)
    is_old = name.startswith(_OLD_PREFIX)
    return _is_host(name.removeprefix(_OLD_PREFIX), needs_port=not is_old)


def current_name(name: str) -> str | None:
    """Return the name without the old prefix `http:`, or None for a host without a port.

    A host without a port would name two downstreams, one for each scheme.
    """
    if not name.startswith(_OLD_PREFIX):
        return name
    address = name.removeprefix(_OLD_PREFIX)
    return address if _is_host(address, needs_port=True) else None


def _is_host(address: str, *, needs_port: bool) -> bool:
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or address != address.lower() or set(found["host"]) & set(" \t\r\n/?#@"):
        return False
    port = found["port"]
    if port is None:
        return bool(found["host"]) and not needs_port
    is_number = port.isascii() and port.isdigit() and len(port) <= _MAX_PORT_DIGITS
    return bool(found["host"]) and is_number and 0 < int(port) <= _MAX_PORT


@lru_cache(4096)  # many tickets contain few URLs
def _host(url: str) -> str:
    """Return host and port without the user. A URL without a port has the port of its scheme."""
    scheme, _, rest = url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    address = rest.rpartition("@")[2].lower()
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        return address[:MAX_DOWNSTREAM]
    port = found["port"] or _PORTS.get(scheme.lower(), "")
    return f"{found['host'][: MAX_DOWNSTREAM - len(port) - 1]}:{port}"[:MAX_DOWNSTREAM]
