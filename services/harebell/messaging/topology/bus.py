"""The whole bus as one value. Read this first: who publishes what where is all here.

| exchange          | carries                                | ends in                          |
|-------------------|----------------------------------------|----------------------------------|
| harebell.commands | <tenant>.schedule.put, ...             | harebell.intake                  |
| harebell.queries  | <tenant>.schedule.get, ...; dlq        | harebell.queries, harebell.dlq   |
| harebell.changes  | checked commands                       | harebell.ticker, harebell.dlq,   |
|                   |                                        | harebell.breakers                |
| harebell.delay    | tickets that wait, by tier             | harebell.delay.<ms>, then due    |
| harebell.due      | tickets that are due, or nearly        | harebell.dispatcher              |
| harebell.work     | tickets by <pool>.<lane>               | harebell.work.<pool>.<lane>      |
| harebell.control  | to one instance                        | an exclusive queue of each       |
|                   | to all dispatchers: how breakers stand | likewise                         |
|                   | ticker.breaker: what is asked of them  | harebell.breakers                |
| harebell.events   | <tenant>.run.*, <tenant>.schedule.*    | anyone's; harebell.events.recent |
|                   | <tenant>.run.dead                      | harebell.ticker.outcomes         |
|                   | alerts: <tenant>.dlq.grown, ...        | harebell.alerts                  |
|                   | <tenant>.breaker.*                     | harebell.breakers                |
|                   | outcomes of attempts, breaker.*        | an exclusive queue of each       |
|                   |                                        | dispatcher                       |
| harebell.dead     | dead letters, rejects                  | harebell.dead, a copy in .recent |
"""

from typing import Final

from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
    COMMANDS,
    CONTROL,
    DEAD,
    DELAY,
    DUE,
    EVENTS,
    QUERIES,
    WORK,
    Lane,
    work_key,
)
from harebell.contract.events import ALERT_EVENTS
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

RECENT_LENGTH: Final = 1_000  # messages kept for people to look at; the oldest go first
ALERT_TTL_MS: Final = 3_600_000  # an alert that nobody has fetched for an hour is history

INTAKE: Final = Queue("harebell.intake", dead_letter_exchange=DEAD, single_active_consumer=True)
TICKER: Final = Queue("harebell.ticker", dead_letter_exchange=DEAD, single_active_consumer=True)
OUTCOMES: Final = Queue("harebell.ticker.outcomes", dead_letter_exchange=DEAD)
QUERY: Final = Queue("harebell.queries", dead_letter_exchange=DEAD)
DLQ: Final = Queue("harebell.dlq", dead_letter_exchange=DEAD)
BREAKERS: Final = Queue("harebell.breakers", dead_letter_exchange=DEAD, single_active_consumer=True)
DISPATCHER: Final = Queue("harebell.dispatcher", dead_letter_exchange=DEAD)
DEAD_LETTERS: Final = Queue("harebell.dead", delivery_limit=UNLIMITED)


def _recent(name: str) -> Queue:
    """Copies for people, who may look at one as often as they like."""
    return Queue(name, delivery_limit=UNLIMITED, max_length=RECENT_LENGTH)


DEAD_RECENT: Final = _recent("harebell.dead.recent")
EVENTS_RECENT: Final = _recent("harebell.events.recent")


# Fetched by the inspector where it is told a webhook; else they lapse.
ALERT: Final = Queue(
    "harebell.alerts",
    ttl_ms=ALERT_TTL_MS,
    delivery_limit=UNLIMITED,
    max_length=RECENT_LENGTH,
)


def work_queue(pool: str, lane: Lane) -> Queue:
    return Queue(f"{WORK}.{work_key(pool, lane)}", dead_letter_exchange=DEAD)


def work_topology(pool: str) -> Topology:
    """The lanes of one pool; its executors declare them."""
    queues = tuple(work_queue(pool, lane) for lane in Lane)
    bindings = tuple(
        Binding(WORK, work_key(pool, lane), work_queue(pool, lane).name) for lane in Lane
    )
    return Topology(queues=queues, bindings=bindings)


def executor_control_key(instance: str) -> str:
    return f"executor.{instance}"


def executor_control_queue(instance: str) -> str:
    """Exclusive to an executor's connection: while it exists, that executor is alive."""
    return f"{CONTROL}.{executor_control_key(instance)}"


BREAKER_SNAPSHOT_KEY: Final = "dispatcher.breaker"
BREAKER_SNAPSHOT_REQUEST_KEY: Final = "ticker.breaker"
ALL_BREAKER_EVENTS: Final = "*.breaker.*"


def dispatcher_control_queue(instance: str) -> str:
    """Exclusive to a dispatcher's connection: what it hears of attempts and of breakers."""
    return f"{CONTROL}.dispatcher.{instance}"


_DIRECT: Final = (CHANGES, DELAY)
_TOPIC: Final = (COMMANDS, QUERIES, DUE, WORK, CONTROL, EVENTS, DEAD)

SYSTEM: Final = (
    Topology(
        exchanges=(
            *(Exchange(name, ExchangeKind.DIRECT) for name in _DIRECT),
            *(Exchange(name, ExchangeKind.TOPIC) for name in _TOPIC),
        ),
        queues=(
            *(INTAKE, TICKER, OUTCOMES, BREAKERS, QUERY, DLQ, DISPATCHER),
            *(DEAD_LETTERS, DEAD_RECENT, EVENTS_RECENT, ALERT),
        ),
        bindings=(
            Binding(COMMANDS, "#", INTAKE.name),
            Binding(QUERIES, "*.schedule.#", QUERY.name),
            Binding(QUERIES, "*.run.#", QUERY.name),
            Binding(QUERIES, "*.breaker.#", QUERY.name),
            Binding(QUERIES, "*.dlq.#", DLQ.name),
            Binding(CHANGES, CHANGES_SCHEDULE, TICKER.name),
            Binding(CHANGES, CHANGES_DLQ, DLQ.name),
            Binding(CHANGES, CHANGES_BREAKER, BREAKERS.name),
            Binding(CONTROL, BREAKER_SNAPSHOT_REQUEST_KEY, BREAKERS.name),
            Binding(EVENTS, ALL_BREAKER_EVENTS, BREAKERS.name),
            Binding(EVENTS, ALL_BREAKER_EVENTS, EVENTS_RECENT.name),
            Binding(DUE, "#", DISPATCHER.name),
            Binding(EVENTS, "*.run.dead", OUTCOMES.name),
            Binding(EVENTS, "*.schedule.#", EVENTS_RECENT.name),
            *(Binding(EVENTS, f"*.{verb}", ALERT.name) for verb in ALERT_EVENTS),
            Binding(DEAD, "#", DEAD_LETTERS.name),
            Binding(DEAD, "#", DEAD_RECENT.name),
        ),
    )
    + work_topology(DEFAULT_POOL)
    + delay_topology()
)
