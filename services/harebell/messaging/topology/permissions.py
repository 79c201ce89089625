"""Who may do what on the bus: the only place of it, for users of services, people and tenants."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harebell.contract import amqp_names
from harebell.messaging.topology.bus import (
    ALERT,
    BREAKERS,
    DEAD_LETTERS,
    DEAD_RECENT,
    DISPATCHER,
    DLQ,
    EVENTS_RECENT,
    INTAKE,
    OUTCOMES,
    QUERY,
    TICKER,
    dispatcher_control_queue,
    executor_control_queue,
)

NOTHING: Final = ""  # as RabbitMQ has it: matches no name
DEFAULT_EXCHANGE: Final = "amq.default"  # what permissions call the exchange without a name
ANY_EXECUTOR_QUEUE: Final = executor_control_queue("")
ANY_DISPATCHER_QUEUE: Final = dispatcher_control_queue("")
ANY_WORK_QUEUE: Final = f"{amqp_names.WORK}."
OTHER_EXCHANGES: Final = r"(?!harebell\.|amq\.).+"  # exchanges of others: what AMQP targets name


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """On one topic exchange: patterns of routing keys."""

    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class User:
    """Patterns are regular expressions over names of exchanges and queues."""

    name: str
    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    tags: tuple[str, ...] = ()
    topics: tuple[TopicPermission, ...] = ()


def service_users() -> tuple[User, ...]:
    """One for each service. None may declare anything but a queue of its own instance.

    Whoever answers may publish to the default exchange, which is where answers go.
    """
    due = (amqp_names.DELAY, amqp_names.DUE)
    own, listening = starting_with(ANY_EXECUTOR_QUEUE), starting_with(ANY_DISPATCHER_QUEUE)
    return (
        _service(
            "intake",
            consumes=(INTAKE.name, QUERY.name),
            publishes=(amqp_names.CHANGES, amqp_names.EVENTS, DEFAULT_EXCHANGE),
        ),
        _service(
            "ticker",
            consumes=(TICKER.name, OUTCOMES.name, BREAKERS.name),
            publishes=(*due, amqp_names.CONTROL, amqp_names.EVENTS, DEFAULT_EXCHANGE),
            sees=(own, starting_with(ANY_WORK_QUEUE), re.escape(DISPATCHER.name)),
        ),
        User(
            "harebell_dispatcher",
            configure=any_of(listening),
            write=any_of(
                *map(
                    re.escape,
                    (*due, amqp_names.WORK, amqp_names.CONTROL, amqp_names.EVENTS, amqp_names.DEAD),
                ),
                listening,
            ),
            read=any_of(
                *map(re.escape, (DISPATCHER.name, amqp_names.CONTROL, amqp_names.EVENTS)), listening
            ),
        ),
        User(
            "harebell_executor",
            configure=any_of(own),
            write=any_of(
                *map(re.escape, (*due, amqp_names.EVENTS, amqp_names.DEAD)), own, OTHER_EXCHANGES
            ),
            read=any_of(re.escape(amqp_names.CONTROL), own, starting_with(ANY_WORK_QUEUE)),
        ),
        _service(
            "dlq_inspector",
            consumes=(DEAD_LETTERS.name, DLQ.name, ALERT.name),
            publishes=(*due, amqp_names.EVENTS, DEFAULT_EXCHANGE),
        ),
    )


def watchdog_user() -> User:
    """Of `harebell audit --watch`, which only tells who is silent."""
    tells = TopicPermission(amqp_names.EVENTS, write=r"^[^.]+\.liveness\.missed$", read=NOTHING)
    return User("harebell_watchdog", write=any_of(re.escape(amqp_names.EVENTS)), topics=(tells,))


def human_users() -> tuple[User, ...]:
    """Who opens the management UI: to look, or to publish a command and read what came of it."""
    return (
        User("harebell_monitor", tags=("monitoring",)),
        User(
            "harebell_operator",
            write=any_of(re.escape(amqp_names.COMMANDS)),
            read=any_of(re.escape(DEAD_RECENT.name), re.escape(EVENTS_RECENT.name)),
            tags=("management",),
        ),
    )


def tenant_user(tenant: str) -> User:
    """A tenant's services: its own commands, queries and events, and queues of its own name."""
    own = starting_with(f"{tenant}.")
    asks = (amqp_names.COMMANDS, amqp_names.QUERIES)
    return User(
        tenant,
        configure=any_of(own),
        write=any_of(*map(re.escape, asks), own),
        read=any_of(re.escape(amqp_names.EVENTS), own),
        topics=(
            *(TopicPermission(exchange, write=f"^{own}", read=NOTHING) for exchange in asks),
            TopicPermission(amqp_names.EVENTS, write=NOTHING, read=f"^{own}"),
        ),
    )


def _service(
    role: str, *, consumes: Iterable[str], publishes: Iterable[str], sees: Iterable[str] = ()
) -> User:
    """Whatever consumes may reject what it can never understand.

    `sees`: queues that it asks about. RabbitMQ 4 tells only those who have some right to a queue;
    to write to one, without reading from any exchange, is the least.
    """
    return User(
        f"harebell_{role}",
        write=any_of(*map(re.escape, (*publishes, amqp_names.DEAD)), *sees),
        read=any_of(*map(re.escape, consumes)),
    )


def starting_with(name: str) -> str:
    return f"{re.escape(name)}.*"


def any_of(*patterns: str) -> str:
    """The whole of a name must match: a pattern without anchors matches anywhere in it."""
    return f"^({'|'.join(patterns)})$"
