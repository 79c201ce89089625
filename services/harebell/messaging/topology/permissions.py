"""RabbitMQ users and their permissions: services, the watchdog, people and tenants. Pure."""

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
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
    PARKED_DEAD_LETTERS,
    QUERY,
    REPORTS,
    TICKER,
    UNDELIVERED_REQUESTS,
    delayed_queue,
    dispatcher_control_queue,
    executor_control_queue,
    intake_control_queue,
    tenant_dlq_queue,
    tenant_intake_queue,
    tenant_query_queue,
    undelivered_queue,
)

NOTHING: Final = ""  # RabbitMQ: a pattern that matches no name
DEFAULT_EXCHANGE: Final = "amq.default"  # the name of the default exchange in permissions
ANY_EXECUTOR_QUEUE: Final = executor_control_queue("")
ANY_INTAKE_CONTROL_QUEUE: Final = intake_control_queue("")
ANY_DELAYED_QUEUE: Final = delayed_queue("").name
ANY_TENANT_INTAKE_QUEUE: Final = tenant_intake_queue("").name
ANY_TENANT_QUERY_QUEUE: Final = tenant_query_queue("").name
ANY_TENANT_DLQ_QUEUE: Final = tenant_dlq_queue("").name
ANY_UNDELIVERED_QUEUE: Final = undelivered_queue("").name
ANY_DISPATCHER_QUEUE: Final = dispatcher_control_queue("")
ANY_WORK_QUEUE: Final = f"{amqp_names.WORK}."
OTHER_EXCHANGES: Final = r"(?!harebell\.|amq\.).+"  # the exchanges that AMQP targets name


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Patterns of the routing keys that a user may write to and read from a topic exchange."""

    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class User:
    """A RabbitMQ user. The patterns are regular expressions for names of exchanges and queues."""

    name: str
    _: KW_ONLY
    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    tags: tuple[str, ...] = ()
    topics: tuple[TopicPermission, ...] = ()


def service_users() -> tuple[User, ...]:
    """Return one user for each service.

    A service may declare only the exclusive queue of its instance.
    A service that sends replies may publish to the default exchange.
    """
    ticket_exchanges = (amqp_names.DELAY, amqp_names.DUE)
    intake_queue = starting_with(ANY_INTAKE_CONTROL_QUEUE)
    executor_queue = starting_with(ANY_EXECUTOR_QUEUE)
    dispatcher_queue = starting_with(ANY_DISPATCHER_QUEUE)
    return (
        User(
            "harebell_intake",
            configure=any_of(intake_queue),
            write=any_of(
                re.escape(amqp_names.CHANGES),
                re.escape(amqp_names.EVENTS),
                re.escape(DEFAULT_EXCHANGE),
                re.escape(amqp_names.DEAD),
                intake_queue,
            ),
            read=any_of(
                re.escape(INTAKE.name),
                starting_with(ANY_DELAYED_QUEUE),
                re.escape(QUERY.name),
                starting_with(ANY_TENANT_INTAKE_QUEUE),
                starting_with(ANY_TENANT_QUERY_QUEUE),
                intake_queue,
            ),
        ),
        _service(
            "ticker",
            consumes=(TICKER.name, REPORTS.name, OUTCOMES.name, BREAKERS.name),
            publishes=(
                *ticket_exchanges,
                amqp_names.CONTROL,
                amqp_names.EVENTS,
                DEFAULT_EXCHANGE,
            ),
            inspects=(
                executor_queue,
                starting_with(ANY_WORK_QUEUE),
                *(re.escape(each.name) for each in (DISPATCHER, INTAKE, REPORTS)),
            ),
        ),
        User(
            "harebell_dispatcher",
            configure=any_of(dispatcher_queue),
            write=any_of(
                *map(re.escape, ticket_exchanges),
                re.escape(amqp_names.WORK),
                re.escape(amqp_names.CONTROL),
                re.escape(amqp_names.EVENTS),
                re.escape(amqp_names.DEAD),
                dispatcher_queue,
            ),
            read=any_of(
                re.escape(DISPATCHER.name),
                re.escape(amqp_names.CONTROL),
                re.escape(amqp_names.EVENTS),
                dispatcher_queue,
            ),
        ),
        User(
            "harebell_executor",
            configure=any_of(executor_queue),
            write=any_of(
                *map(re.escape, ticket_exchanges),
                re.escape(amqp_names.EVENTS),
                re.escape(amqp_names.DEAD),
                executor_queue,
                OTHER_EXCHANGES,
            ),
            read=any_of(
                re.escape(amqp_names.CONTROL), executor_queue, starting_with(ANY_WORK_QUEUE)
            ),
        ),
        _service(
            "dlq_inspector",
            consumes=(
                DEAD_LETTERS.name,
                UNDELIVERED_REQUESTS.name,
                DLQ.name,
                ALERT.name,
                PARKED_DEAD_LETTERS.name,
            ),
            publishes=(
                *ticket_exchanges,
                amqp_names.COMMANDS,  # commands that a person replays
                amqp_names.EVENTS,
                DEFAULT_EXCHANGE,
            ),
            consumes_any=map(starting_with, (ANY_TENANT_DLQ_QUEUE, ANY_UNDELIVERED_QUEUE)),
        ),
    )


def watchdog_user() -> User:
    """Return the user of `harebell audit --watch`, which publishes only `liveness.missed`."""
    events = TopicPermission(amqp_names.EVENTS, write=r"^[^.]+\.liveness\.missed$", read=NOTHING)
    return User("harebell_watchdog", write=any_of(re.escape(amqp_names.EVENTS)), topics=(events,))


def human_users() -> tuple[User, ...]:
    """Return the users of the management UI: one for monitoring and one for commands."""
    return (User("harebell_monitor", tags=("monitoring",)), _operator("harebell_operator"))


def operator_user(name: str) -> User:
    """Return the user of one person with the rights of an operator.

    No tenant can have a login with this prefix.
    """
    return _operator(f"harebell_operator_{name}")


def _operator(login: str) -> User:
    return User(
        login,
        write=any_of(re.escape(amqp_names.COMMANDS), re.escape(amqp_names.QUERIES)),
        read=any_of(re.escape(DEAD_RECENT.name), re.escape(EVENTS_RECENT.name)),
        tags=("management",),
    )


def tenant_user(tenant: str, *, declares: bool = False) -> User:
    """Return the user for the services of a tenant.

    The user may publish to the exchange of the tenant and consume its queues `<tenant>.*`, which
    the definitions create. With `declares`, the user may also declare exchanges and queues
    `<tenant>.*`, and bind them to the events of the tenant.
    """
    own_exchange = re.escape(amqp_names.tenant_exchange(tenant))
    own_names = starting_with(f"{tenant}.")
    if not declares:
        return User(tenant, write=any_of(own_exchange), read=any_of(own_names))
    return User(
        tenant,
        configure=any_of(own_names),
        write=any_of(own_exchange, own_names),
        read=any_of(re.escape(amqp_names.EVENTS), own_names),
        topics=(TopicPermission(amqp_names.EVENTS, write=NOTHING, read=f"^{own_names}"),),
    )


def _service(
    role: str,
    *,
    consumes: Iterable[str],
    publishes: Iterable[str],
    consumes_any: Iterable[str] = (),
    inspects: Iterable[str] = (),
) -> User:
    """Return the user of a service, which may also publish dead letters.

    `consumes_any` contains patterns of further queues.
    `inspects` names the queues that the service declares passively.
    RabbitMQ 4 answers only users with a permission for the queue.
    The permission to write to a queue is the smallest one.
    """
    return User(
        f"harebell_{role}",
        write=any_of(*map(re.escape, (*publishes, amqp_names.DEAD)), *inspects),
        read=any_of(*map(re.escape, consumes), *consumes_any),
    )


def starting_with(name: str) -> str:
    return f"{re.escape(name)}.*"


def any_of(*patterns: str) -> str:
    """Return a pattern with anchors, because RabbitMQ searches a pattern without anchors."""
    return f"^({'|'.join(patterns)})$"
