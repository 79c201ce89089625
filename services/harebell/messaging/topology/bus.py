"""The exchanges, queues and bindings of Harebell, as one value.

The table lists each exchange, the routing keys of its messages and the queues that receive them.
An exclusive queue belongs to the connection of one instance and is not part of this value.

| exchange          | messages by routing key                   | queue                         |
|-------------------|-------------------------------------------|-------------------------------|
| harebell.commands | <tenant>.schedule.put, ...: commands      | harebell.intake               |
| harebell.queries  | <tenant>.dlq.*: dead letter queries       | harebell.dlq                  |
|                   | <tenant>.schedule.get, ...: other queries | harebell.queries              |
| harebell.changes  | schedule: accepted schedule commands      | harebell.ticker               |
|                   | dlq: accepted dead letter commands        | harebell.dlq                  |
|                   | breaker: accepted breaker commands        | harebell.breakers             |
|                   | report: accepted reports of workers       | harebell.reports              |
| harebell.delay    | <ms>: tickets that wait                   | harebell.delay.<ms>, then due |
| harebell.due      | run: tickets for the dispatcher           | harebell.dispatcher           |
| harebell.work     | <pool>.<lane>: tickets for executors      | harebell.work.<pool>.<lane>   |
| harebell.control  | executor.<instance>: stop requests        | exclusive, of the executor    |
|                   | dispatcher.breaker: breaker snapshots     | exclusive, of each dispatcher |
|                   | ticker.breaker: snapshot requests         | harebell.breakers             |
| harebell.events   | <tenant>.run.succeeded, ...: run events   | exclusive, of each dispatcher |
|                   | <tenant>.run.dead: events of dead runs    | harebell.ticker.outcomes      |
|                   | <tenant>.schedule.*: schedule events      | harebell.events.recent        |
|                   | <tenant>.breaker.*: breaker events        | harebell.breakers             |
|                   |                                           | harebell.events.recent        |
|                   |                                           | exclusive, of each dispatcher |
|                   | <tenant>.dlq.spike, ...: `ALERT_EVENTS`   | harebell.alerts               |
| harebell.dead     | run.<tenant>: dead runs                   | harebell.dead                 |
|                   | message.<queue>: rejected messages        | harebell.dead.recent          |
| harebell.parked   | dead letters that cannot be stored        | harebell.parked               |
| harebell.         | dead commands and queries of the shared   | harebell.undelivered          |
| undelivered       | queues, by their own keys                 |                               |

Users bind their own queues to harebell.events.
Each exchange of an operator with delayed messages has queues of its own: see `delayed_topology`.

A broker of an operator has exchanges and queues for each tenant: see `tenant_topology`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_REPORT,
    CHANGES_SCHEDULE,
    COMMANDS,
    CONTROL,
    DEAD,
    DELAY,
    DUE,
    EVENTS,
    PARKED,
    QUERIES,
    UNDELIVERED,
    WORK,
    Lane,
    delayed_queue_name,
    due_exchange,
    message_key,
    tenant_exchange,
    work_key,
)
from harebell.contract.events import ALERT_EVENTS
from harebell.contract.queries import DEAD_LETTER_QUERIES
from harebell.contract.queries import QUERIES as QUERY_MODELS
from harebell.contract.schedule import DEFAULT_POOL
from harebell.messaging.topology.declarations import (
    UNLIMITED,
    Binding,
    Exchange,
    ExchangeKind,
    Queue,
    Topology,
)
from harebell.messaging.topology.delay_queues import delay_topology

RECENT_LENGTH: Final = 1_000  # messages, of which the broker drops the oldest
ALERT_TTL_MS: Final = 3_600_000  # an alert is of no use after an hour

# Users write to this queue and to those of the tenants. The broker dead-letters such a message to
# an exchange of its own, because a message of a user must not look like a dead letter of a service.
INTAKE: Final = Queue(
    "harebell.intake", dead_letter_exchange=UNDELIVERED, single_active_consumer=True
)
TICKER: Final = Queue("harebell.ticker", dead_letter_exchange=DEAD, single_active_consumer=True)
REPORTS: Final = Queue("harebell.reports", dead_letter_exchange=DEAD)
OUTCOMES: Final = Queue("harebell.ticker.outcomes", dead_letter_exchange=DEAD)
QUERY: Final = Queue("harebell.queries", dead_letter_exchange=UNDELIVERED)
DLQ: Final = Queue("harebell.dlq", dead_letter_exchange=UNDELIVERED)
BREAKERS: Final = Queue("harebell.breakers", dead_letter_exchange=DEAD, single_active_consumer=True)
DISPATCHER: Final = Queue("harebell.dispatcher", dead_letter_exchange=DEAD)
DEAD_LETTERS: Final = Queue("harebell.dead", dead_letter_exchange=PARKED)
UNDELIVERED_REQUESTS: Final = Queue(UNDELIVERED, dead_letter_exchange=PARKED)
# Nothing consumes this queue. People read its messages and return them.
PARKED_DEAD_LETTERS: Final = Queue(PARKED, delivery_limit=UNLIMITED, rejects_when_full=True)


def _recent(name: str) -> Queue:
    """Return a queue of copies that people may read and return any number of times."""
    return Queue(name, delivery_limit=UNLIMITED, max_length=RECENT_LENGTH)


DEAD_RECENT: Final = _recent("harebell.dead.recent")
EVENTS_RECENT: Final = _recent("harebell.events.recent")

# The dlq_inspector consumes alerts if it has a webhook. Otherwise the alerts expire.
ALERT: Final = Queue("harebell.alerts", ttl_ms=ALERT_TTL_MS, max_length=RECENT_LENGTH)


def undelivered_queue(owner: str) -> Queue:
    """Return the queue of what the queues of one owner dead-letter.

    The owner is a tenant, or `delayed.<exchange>`.
    """
    return replace(UNDELIVERED_REQUESTS, name=f"{UNDELIVERED}.{owner}")


def undelivered_queue_of_delayed(exchange: str) -> Queue:
    """Return the queue of what the queue of one exchange with delayed messages dead-letters."""
    return undelivered_queue(f"delayed.{exchange}")


def is_undelivered_queue(queue: str) -> bool:
    """Return whether a queue contains what the broker has dead-lettered from queues of users."""
    return queue == UNDELIVERED or queue.startswith(f"{UNDELIVERED}.")


def _with_exchange(queue: Queue) -> Topology:
    """Return the queue with the exchange of its name, which leads to it alone."""
    return Topology(
        exchanges=(Exchange(queue.name, ExchangeKind.FANOUT),),
        queues=(queue,),
        bindings=(Binding(queue.name, "", queue.name),),
    )


def tenant_intake_queue(tenant: str) -> Queue:
    """Return the queue of the commands of one tenant."""
    return _of_tenant(INTAKE, tenant)


def tenant_query_queue(tenant: str) -> Queue:
    """Return the queue of the queries of one tenant, except those about dead letters."""
    return _of_tenant(QUERY, tenant)


def tenant_dlq_queue(tenant: str) -> Queue:
    """Return the queue of the queries of one tenant about dead letters."""
    return _of_tenant(DLQ, tenant)


def consumed_queues(tenant: str) -> tuple[Queue, ...]:
    """Return the queues of one tenant that Harebell consumes."""
    return (
        tenant_intake_queue(tenant),
        tenant_query_queue(tenant),
        tenant_dlq_queue(tenant),
        undelivered_queue(tenant),
    )


def _of_tenant(queue: Queue, tenant: str) -> Queue:
    dead_letters = undelivered_queue(tenant).name
    return replace(queue, name=f"{queue.name}.{tenant}", dead_letter_exchange=dead_letters)


def work_queue(pool: str, lane: Lane) -> Queue:
    return Queue(f"{WORK}.{work_key(pool, lane)}", dead_letter_exchange=DEAD)


def work_topology(pool: str) -> Topology:
    """Return the work queues of one pool, which the executors of the pool declare."""
    queues = tuple(work_queue(pool, lane) for lane in Lane)
    bindings = tuple(
        Binding(WORK, work_key(pool, lane), work_queue(pool, lane).name) for lane in Lane
    )
    return Topology(queues=queues, bindings=bindings)


def delayed_queue(exchange: str) -> Queue:
    """Return the queue of one exchange. One consumer keeps the order of messages with one id."""
    name = delayed_queue_name(exchange)
    dead_letters = undelivered_queue_of_delayed(exchange).name
    return Queue(name, dead_letter_exchange=dead_letters, single_active_consumer=True)


def delayed_topology(exchanges: Mapping[str, ExchangeKind]) -> Topology:
    """Return the exchanges of delayed messages, with the type of each due exchange.

    Each exchange passes all its messages to one queue, whatever their routing keys. No exchange
    shares this queue, so the messages of a tenant delay those of no other tenant.
    """
    topology = Topology(
        exchanges=(
            *(Exchange(name, ExchangeKind.TOPIC) for name in exchanges),
            *(Exchange(due_exchange(name), kind) for name, kind in exchanges.items()),
        ),
        queues=tuple(map(delayed_queue, exchanges)),
        bindings=tuple(Binding(name, "#", delayed_queue_name(name)) for name in exchanges),
    )
    for exchange in exchanges:
        topology += _with_exchange(undelivered_queue_of_delayed(exchange))
    return topology


def tenant_topology(tenant: str, queues: Mapping[str, Sequence[str]] | None = None) -> Topology:
    """Return the exchange of one tenant, and the queues to which alone it leads.

    The queries have a binding each. All other messages take the alternate exchange to the intake
    queue, so that a misspelt verb has an answer too.
    `queues` are further queues of the tenant, each with the patterns of its events: `run.*`.
    """
    exchange = tenant_exchange(tenant)
    others = f"{exchange}.commands"
    commands, queries, dlq = (
        make(tenant) for make in (tenant_intake_queue, tenant_query_queue, tenant_dlq_queue)
    )
    own = queues or {}
    return _with_exchange(undelivered_queue(tenant)) + Topology(
        exchanges=(
            Exchange(others, ExchangeKind.FANOUT),
            Exchange(exchange, ExchangeKind.TOPIC, alternate=others),
        ),
        queues=(commands, queries, dlq, *(Queue(name) for name in own)),
        bindings=(
            Binding(others, "", commands.name),
            *(
                Binding(
                    exchange,
                    message_key(tenant, verb),
                    (dlq if verb in DEAD_LETTER_QUERIES else queries).name,
                )
                for verb in QUERY_MODELS
            ),
            *(
                Binding(EVENTS, message_key(tenant, pattern), name)
                for name, patterns in own.items()
                for pattern in patterns
            ),
        ),
    )


def tenant_of_queue(queue: str) -> str | None:
    """Return the tenant to which a queue of commands or queries belongs, or None if shared."""
    for each in (INTAKE, QUERY, DLQ):
        if queue.startswith(f"{each.name}."):
            return queue.removeprefix(f"{each.name}.")
    return None


def executor_control_key(instance: str) -> str:
    return f"executor.{instance}"


def executor_control_queue(instance: str) -> str:
    """Return the name of the exclusive queue of an executor.

    The queue exists while the connection of the executor exists, so it shows that the executor is
    alive.
    """
    return f"{CONTROL}.{executor_control_key(instance)}"


def intake_control_queue(instance: str) -> str:
    """Return the name of the exclusive queue of an intake, for the credits of the ticker."""
    return f"{CONTROL}.intake.{instance}"


BREAKER_SNAPSHOT_KEY: Final = "dispatcher.breaker"
BREAKER_SNAPSHOT_REQUEST_KEY: Final = "ticker.breaker"
ALL_BREAKER_EVENTS: Final = "*.breaker.*"


def dispatcher_control_queue(instance: str) -> str:
    """Return the name of the exclusive queue of a dispatcher, for run events and breakers."""
    return f"{CONTROL}.dispatcher.{instance}"


_DIRECT: Final = (CHANGES, DELAY)
_TOPIC: Final = (COMMANDS, QUERIES, DUE, WORK, CONTROL, EVENTS, DEAD, UNDELIVERED, PARKED)

# Without the delay queues and the work queues: intake and the DLQ inspector send no tickets.
CORE: Final = Topology(
    exchanges=(
        *(Exchange(name, ExchangeKind.DIRECT) for name in _DIRECT),
        *(Exchange(name, ExchangeKind.TOPIC) for name in _TOPIC),
    ),
    queues=(
        INTAKE,
        TICKER,
        REPORTS,
        OUTCOMES,
        BREAKERS,
        QUERY,
        DLQ,
        DISPATCHER,
        DEAD_LETTERS,
        DEAD_RECENT,
        UNDELIVERED_REQUESTS,
        PARKED_DEAD_LETTERS,
        EVENTS_RECENT,
        ALERT,
    ),
    bindings=(
        Binding(COMMANDS, "#", INTAKE.name),
        Binding(QUERIES, "*.schedule.#", QUERY.name),
        Binding(QUERIES, "*.run.#", QUERY.name),
        Binding(QUERIES, "*.breaker.#", QUERY.name),
        Binding(QUERIES, "*.tenant.#", QUERY.name),
        Binding(QUERIES, "*.calendar.#", QUERY.name),
        Binding(QUERIES, "*.dlq.#", DLQ.name),
        Binding(CHANGES, CHANGES_SCHEDULE, TICKER.name),
        Binding(CHANGES, CHANGES_DLQ, DLQ.name),
        Binding(CHANGES, CHANGES_BREAKER, BREAKERS.name),
        Binding(CHANGES, CHANGES_REPORT, REPORTS.name),
        Binding(CONTROL, BREAKER_SNAPSHOT_REQUEST_KEY, BREAKERS.name),
        Binding(EVENTS, ALL_BREAKER_EVENTS, BREAKERS.name),
        Binding(EVENTS, ALL_BREAKER_EVENTS, EVENTS_RECENT.name),
        Binding(DUE, "#", DISPATCHER.name),
        Binding(EVENTS, "*.run.dead", OUTCOMES.name),
        Binding(EVENTS, "*.schedule.#", EVENTS_RECENT.name),
        *(Binding(EVENTS, f"*.{verb}", ALERT.name) for verb in ALERT_EVENTS),
        Binding(DEAD, "#", DEAD_LETTERS.name),
        Binding(DEAD, "#", DEAD_RECENT.name),
        Binding(UNDELIVERED, "#", UNDELIVERED_REQUESTS.name),
        Binding(PARKED, "#", PARKED_DEAD_LETTERS.name),
    ),
)
SYSTEM: Final = CORE + work_topology(DEFAULT_POOL) + delay_topology()
