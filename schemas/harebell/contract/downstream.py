"""Whom a target calls, by one name: `http:acme.example`, `amqp:acme.jobs`, `task:acme.report`."""

from functools import lru_cache
from typing import Any, Final, assert_never

from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget

UNKNOWN_DOWNSTREAM: Final = (
    ""  # of a target that is not known here: nothing is said of whom it calls
)
MAX_DOWNSTREAM: Final = 255  # characters; a longer name is cut

_PORTS: Final = {"http": ":80", "https": ":443"}


def downstream_of(target: Target) -> str:
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
    """The same of a target that nobody has checked: every ticket that is routed asks this."""
    try:
        ((kind, what),) = target.items()
        if kind == "http":
            return _host(what["url"])
        if kind == "task":
            return f"task:{what['name']}"
        return f"amqp:{what['exchange']}" if kind == "amqp" else UNKNOWN_DOWNSTREAM
    except (AttributeError, KeyError, TypeError, ValueError):
        return UNKNOWN_DOWNSTREAM


def is_downstream_name(name: str) -> bool:
    """Whether a target may have this name."""
    kind, _, what = name.partition(":")
    if kind == "http":
        return what.split() == [what] and _host(f"://{what}") == name
    return kind in {"amqp", "task"} and bool(what)


@lru_cache(4096)  # many tickets say few addresses
def _host(url: str) -> str:
    """Host and port, without what is said of users; the port only where it is not the usual."""
    scheme, _, rest = url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    host = rest.rpartition("@")[2].lower()
    return f"http:{host.removesuffix(_PORTS.get(scheme, ''))}"[:MAX_DOWNSTREAM]
