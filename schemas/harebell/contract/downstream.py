"""The name of a downstream: `http:acme.example`, `amqp:acme.jobs` or `task:acme.report`."""

from functools import lru_cache
from typing import Any, Final, assert_never

from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget

UNKNOWN_DOWNSTREAM: Final = ""  # of a kind of target that this version does not know
MAX_DOWNSTREAM: Final = 255  # characters; a longer name is truncated

_PORTS: Final = {"http": ":80", "https": ":443"}


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
    """Return whether a target can have a downstream with this name."""
    kind, _, address = name.partition(":")
    if kind == "http":
        return address.split() == [address] and _host(f"://{address}") == name
    return kind in {"amqp", "task"} and bool(address)


@lru_cache(4096)  # many tickets contain few URLs
def _host(url: str) -> str:
    """Return host and port without the user. The default port of the scheme is omitted."""
    scheme, _, rest = url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    host = rest.rpartition("@")[2].lower()
    return f"http:{host.removesuffix(_PORTS.get(scheme, ''))}"[:MAX_DOWNSTREAM]
