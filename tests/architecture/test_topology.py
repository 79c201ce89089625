"""The declared topology is sound. The tests check it as a value, without a broker."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.architecture.source_tree import ROOT

from harebell.contract import amqp_names
from harebell.contract.amqp_names import Lane
from harebell.contract.commands import COMMANDS
from harebell.contract.events import ALERT_EVENTS, EVENT_DATA
from harebell.contract.queries import QUERIES
from harebell.contract.schedule import DEFAULT_POOL
from harebell.dispatcher.release.queue import MAX_QUEUED_WAIT
from harebell.messaging.topology.bus import DISPATCHER, SYSTEM, work_topology
from harebell.messaging.topology.declarations import UNLIMITED, Queue
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.messaging.topology.delay_queues import (
    DELAY_TTLS_MS,
    LONGEST_LEAD,
    LONGEST_MS,
    delay_queue_key,
    delay_queue_name,
    ttl_for,
)

QUEUES: Final = {queue.name: queue for queue in SYSTEM.queues}
DELAY_QUEUES: Final = frozenset(delay_queue_name(ms) for ms in DELAY_TTLS_MS)
# The queues without a dead letter exchange: copies for people and alerts, and the last queue.
COPIES: Final = frozenset({"harebell.dead.recent", "harebell.events.recent", "harebell.alerts"})
LAST: Final = frozenset({"harebell.parked"})
DEFAULT_HORIZON: Final = timedelta(seconds=84)
MAX_HOPS: Final = 3

ROUTES: Final = [
    *((amqp_names.COMMANDS, amqp_names.message_key("acme", verb)) for verb in COMMANDS),
    *((amqp_names.QUERIES, amqp_names.message_key("acme", verb)) for verb in QUERIES),
    (amqp_names.CHANGES, amqp_names.CHANGES_SCHEDULE),
    (amqp_names.CHANGES, amqp_names.CHANGES_DLQ),
    *((amqp_names.DELAY, delay_queue_key(ms)) for ms in DELAY_TTLS_MS),
    (amqp_names.DUE, amqp_names.DUE_KEY),
    *((amqp_names.WORK, amqp_names.work_key(DEFAULT_POOL, lane)) for lane in Lane),
    *(
        (amqp_names.EVENTS, amqp_names.message_key("acme", verb))
        for verb in EVENT_DATA
        if verb.startswith("schedule.") or verb in ALERT_EVENTS  # users bind the other events
    ),
    (amqp_names.DEAD, "run.acme"),
    (amqp_names.DEAD, f"message.{DISPATCHER.name}"),
    (amqp_names.PARKED, f"message.{DISPATCHER.name}"),
]


def matches(pattern: str, key: str) -> bool:
    """Apply the rule of a topic exchange: `*` is one word, and `#` is any number of words."""
    if not pattern:
        return not key
    (word, _, rest), (first, _, others) = pattern.partition("."), key.partition(".")
    if word == "#":
        return not rest or matches(rest, key) or (bool(key) and matches(pattern, others))
    return bool(key) and word in {"*", first} and matches(rest, others)


def queues_for(exchange: str, key: str) -> set[str]:
    """Return the queues that receive a message with this routing key."""
    return {
        binding.queue
        for binding in SYSTEM.bindings
        if binding.exchange == exchange and matches(binding.routing_key, key)
    }


@pytest.mark.parametrize(
    ("pattern", "key", "is_match"),
    [
        ("#", "a.b.c", True),
        ("*.run.#", "acme.run.get", True),
        ("*.run.#", "acme.schedule.get", False),
        ("*", "a.b", False),
        ("a.#", "a", True),
    ],
)
def test_topic_pattern_matches_as_in_rabbitmq(pattern: str, key: str, *, is_match: bool) -> None:
    assert matches(pattern, key) is is_match


@pytest.mark.parametrize(("exchange", "key"), ROUTES)
def test_routing_key_reaches_a_queue(exchange: str, key: str) -> None:
    assert queues_for(exchange, key)


@pytest.mark.parametrize("queue", SYSTEM.queues, ids=lambda queue: queue.name)
def test_queue_is_a_quorum_queue_with_a_dead_letter_exchange(queue: Queue) -> None:
    assert queue.arguments()["x-queue-type"] == "quorum"
    assert (queue.dead_letter_exchange is None) is (queue.name in COPIES | LAST)


def test_queue_with_a_consumer_delivers_a_message_a_bounded_number_of_times() -> None:
    unlimited = {each.name for each in SYSTEM.queues if each.delivery_limit == UNLIMITED}

    assert unlimited == DELAY_QUEUES | LAST | COPIES - {"harebell.alerts"}


@pytest.mark.requirement("S61")
@pytest.mark.parametrize("name", sorted(DELAY_QUEUES))
def test_delay_queue_forwards_at_least_once_after_its_ttl(name: str) -> None:
    arguments = QUEUES[name].arguments()

    assert arguments["x-dead-letter-strategy"] == "at-least-once"
    assert arguments["x-overflow"] == "reject-publish"
    assert arguments["x-message-ttl"] == int(name.rpartition(".")[2])
    assert arguments["x-delivery-limit"] == UNLIMITED
    assert "x-expires" not in arguments


def test_names_of_queues_and_exchanges_are_unique() -> None:
    for items in (SYSTEM.queues, SYSTEM.exchanges):
        assert max(Counter(item.name for item in items).values()) == 1


def test_bindings_and_dead_letter_exchanges_name_declared_parts() -> None:
    exchanges = {exchange.name for exchange in SYSTEM.exchanges}
    dead_letter_exchanges = {queue.dead_letter_exchange for queue in SYSTEM.queues} - {None}

    assert dead_letter_exchanges <= exchanges
    assert {binding.exchange for binding in SYSTEM.bindings} <= exchanges
    assert {binding.queue for binding in SYSTEM.bindings} <= set(QUEUES)


def test_dispatcher_queue_is_declared_before_the_delay_queues() -> None:
    declared = [queue.name for queue in SYSTEM.queues]

    assert declared.index(DISPATCHER.name) < min(map(declared.index, DELAY_QUEUES))


@pytest.mark.parametrize("queue", SYSTEM.queues, ids=lambda queue: queue.name)
def test_dead_letter_never_returns_to_its_queue(queue: Queue) -> None:
    reached: set[str] = set()
    layer = {queue.name}
    while layer:
        exchanges = {QUEUES[name].dead_letter_exchange for name in layer} - {None}
        layer = {each.queue for each in SYSTEM.bindings if each.exchange in exchanges} - reached
        reached |= layer

    assert queue.name not in reached


@pytest.mark.requirement("S68")
def test_pool_has_its_own_queue_for_each_lane() -> None:
    mail = work_topology("mail")

    assert len(mail.queues) == len(mail.bindings) == len(Lane)
    assert not {queue.name for queue in mail.queues} & set(QUEUES)


@dataclass(frozen=True)
class Walk:
    """The path of a ticket through the delay queues."""

    waited: timedelta
    hops: int


def walk(due_in: timedelta) -> Walk:
    """Follow the bindings from queue to queue until the dispatcher may queue the ticket."""
    waited, hops = timedelta(0), 0
    while (left := due_in - waited) > MAX_QUEUED_WAIT or not hops:
        if (ttl_ms := ttl_for(left)) is None:
            break
        (name,) = queues_for(amqp_names.DELAY, delay_queue_key(ttl_ms))
        assert queues_for(QUEUES[name].dead_letter_exchange or "", name) == {DISPATCHER.name}
        waited += timedelta(milliseconds=QUEUES[name].ttl_ms or 0)
        hops += 1
    return Walk(waited, hops)


@pytest.mark.requirement("ASK-5")
@given(st.integers(min_value=0, max_value=LONGEST_MS))
def test_ticket_reaches_the_dispatcher_before_its_lead_in_three_hops(delay_ms: int) -> None:
    due_in = timedelta(milliseconds=delay_ms)

    walked = walk(due_in)

    assert due_in - walked.waited <= MAX_QUEUED_WAIT
    assert not walked.hops or due_in - walked.waited >= LONGEST_LEAD
    assert walked.hops <= MAX_HOPS


def test_default_horizon_is_one_hop() -> None:
    assert walk(DEFAULT_HORIZON).hops == 1


def test_definitions_file_of_compose_agrees_with_the_topology() -> None:
    written = json.loads((ROOT / "compose/rabbitmq/definitions.json").read_text())

    assert written == definitions_file(InstallationOptions(), bytes), (
        "Run `harebell topology definitions > compose/rabbitmq/definitions.json`."
    )
