"""`bus.SYSTEM` is sound: judged as a value, without a broker."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.architecture.sources import ROOT

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
TIER_NAMES: Final = {delay_queue_name(ms) for ms in DELAY_TTLS_MS}
# For people to look at, and for a chat.
COPIES: Final = {"harebell.dead.recent", "harebell.events.recent", "harebell.alerts"}
LAST: Final = {"harebell.dead"}  # behind it there is nothing

ROUTES: Final = [
    *((amqp_names.COMMANDS, amqp_names.message_key("acme", verb)) for verb in COMMANDS),
    *((amqp_names.QUERIES, amqp_names.message_key("acme", verb)) for verb in QUERIES),
    *((amqp_names.CHANGES, key) for key in (amqp_names.CHANGES_SCHEDULE, amqp_names.CHANGES_DLQ)),
    *((amqp_names.DELAY, delay_queue_key(ms)) for ms in DELAY_TTLS_MS),
    (amqp_names.DUE, amqp_names.DUE_KEY),
    *((amqp_names.WORK, amqp_names.work_key(DEFAULT_POOL, lane)) for lane in Lane),
    *(
        (amqp_names.EVENTS, amqp_names.message_key("acme", verb))
        for verb in EVENT_DATA
        if verb.startswith("schedule.") or verb in ALERT_EVENTS  # the others are for whoever binds
    ),
    (amqp_names.DEAD, "run.acme"),
    (amqp_names.DEAD, f"message.{DISPATCHER.name}"),
]


def matches(pattern: str, key: str) -> bool:
    """A topic exchange's: `*` is one word, `#` any number of them."""
    if not pattern:
        return not key
    (word, _, rest), (first, _, others) = pattern.partition("."), key.partition(".")
    if word == "#":
        return not rest or matches(rest, key) or (bool(key) and matches(pattern, others))
    return bool(key) and word in {"*", first} and matches(rest, others)


def reached(exchange: str, key: str) -> set[str]:
    return {
        binding.queue
        for binding in SYSTEM.bindings
        if binding.exchange == exchange and matches(binding.routing_key, key)
    }


@pytest.mark.parametrize(
    ("pattern", "key", "does"),
    [
        ("#", "a.b.c", True),
        ("*.run.#", "acme.run.get", True),
        ("*.run.#", "acme.schedule.get", False),
        ("*", "a.b", False),
        ("a.#", "a", True),
    ],
)
def test_topics_match_as_the_brokers_do(pattern: str, key: str, *, does: bool) -> None:
    assert matches(pattern, key) is does


@pytest.mark.parametrize(("exchange", "key"), ROUTES)
def test_every_routing_key_reaches_a_queue(exchange: str, key: str) -> None:
    assert reached(exchange, key)


@pytest.mark.parametrize("queue", SYSTEM.queues, ids=lambda queue: queue.name)
def test_every_queue_that_carries_work_is_quorum_and_dead_letters(queue: Queue) -> None:
    assert queue.arguments()["x-queue-type"] == "quorum"
    assert (queue.dead_letter_exchange is None) is (queue.name in COPIES | LAST)


@pytest.mark.requirement("S61")
@pytest.mark.parametrize("name", sorted(TIER_NAMES))
def test_every_tier_passes_on_at_least_once_and_has_only_its_uniform_ttl(name: str) -> None:
    arguments = QUEUES[name].arguments()

    assert arguments["x-dead-letter-strategy"] == "at-least-once"
    assert arguments["x-overflow"] == "reject-publish"
    assert arguments["x-message-ttl"] == int(name.rpartition(".")[2])
    assert arguments["x-delivery-limit"] == UNLIMITED
    assert "x-expires" not in arguments


def test_no_two_queues_or_exchanges_share_a_name() -> None:
    for items in (SYSTEM.queues, SYSTEM.exchanges):
        assert max(Counter(item.name for item in items).values()) == 1


def test_whatever_is_bound_or_dead_lettered_to_exists() -> None:
    exchanges = {exchange.name for exchange in SYSTEM.exchanges}
    targets = {queue.dead_letter_exchange for queue in SYSTEM.queues} - {None}

    assert targets <= exchanges
    assert {binding.exchange for binding in SYSTEM.bindings} <= exchanges
    assert {binding.queue for binding in SYSTEM.bindings} <= set(QUEUES)


def test_targets_of_dead_letters_are_declared_before_the_tiers() -> None:
    declared = [queue.name for queue in SYSTEM.queues]

    assert declared.index(DISPATCHER.name) < min(map(declared.index, TIER_NAMES))


@pytest.mark.parametrize("queue", SYSTEM.queues, ids=lambda queue: queue.name)
def test_no_dead_letter_comes_back_to_where_it_died(queue: Queue) -> None:
    seen: set[str] = set()
    layer = {queue.name}
    while layer:
        exchanges = {QUEUES[name].dead_letter_exchange for name in layer}
        layer = {
            binding.queue for binding in SYSTEM.bindings if binding.exchange in exchanges - {None}
        } - seen
        seen |= layer

    assert queue.name not in seen


@pytest.mark.requirement("S68")
def test_another_pool_has_a_queue_for_each_lane() -> None:
    mail = work_topology("mail")

    assert len(mail.queues) == len(mail.bindings) == len(Lane)
    assert not {queue.name for queue in mail.queues} & set(QUEUES)


@dataclass(frozen=True)
class Walk:
    waited: timedelta
    hops: int


def walk(due_in: timedelta) -> Walk:
    """Tier by tier, by the bindings, until what is left fits the dispatcher's hold."""
    waited, hops = timedelta(0), 0
    while (left := due_in - waited) > MAX_QUEUED_WAIT or not hops:
        if (tier := ttl_for(left)) is None:
            break
        (name,) = reached(amqp_names.DELAY, delay_queue_key(tier))
        assert reached(QUEUES[name].dead_letter_exchange or "", name) == {DISPATCHER.name}
        waited += timedelta(milliseconds=QUEUES[name].ttl_ms or 0)
        hops += 1
    return Walk(waited, hops)


@pytest.mark.requirement("ASK-5")
@given(st.integers(min_value=0, max_value=LONGEST_MS))
def test_a_message_waits_what_was_asked_within_the_hold(asked: int) -> None:
    due_in = timedelta(milliseconds=asked)

    walked = walk(due_in)

    assert due_in - walked.waited <= MAX_QUEUED_WAIT
    assert not walked.hops or due_in - walked.waited >= LONGEST_LEAD
    assert walked.hops <= 3


def test_the_default_horizon_is_one_hop() -> None:
    assert walk(timedelta(seconds=84)).hops == 1


def test_the_definitions_that_compose_starts_the_broker_with_are_those_of_the_bus() -> None:
    kept = json.loads((ROOT / "compose/rabbitmq/definitions.json").read_text())

    assert kept == definitions_file(InstallationOptions(), bytes), (
        "harebell topology definitions > compose/rabbitmq/definitions.json"
    )
