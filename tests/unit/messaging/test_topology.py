"""What the topology says of a message: whether one of its queues takes it."""

import pytest

from harebell.contract.errors import Unroutable
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.declarations import matches
from harebell.messaging.topology_keeper import TopologyKeeper

NO_EXCHANGE = "no_exchange"


@pytest.mark.parametrize(
    ("pattern", "key", "taken"),
    [
        ("1500", "1500", True),
        ("1500", "1501", False),
        ("#", "acme.run.dead", True),
        ("#", "", True),
        ("*.run.dead", "acme.run.dead", True),
        ("*.run.dead", "acme.run.unresolved", False),
        ("*.run.dead", "run.dead", False),
        ("*.schedule.#", "acme.schedule", True),
        ("*.schedule.#", "acme.schedule.put.twice", True),
        ("*.schedule.#", "acme.run.put", False),
        ("a.#.z", "a.b.c.z", True),
        ("a.#.z", "a.b.c", False),
        ("*", "", True),
        ("*", "a.b", False),
    ],
)
def test_a_pattern_takes_what_a_topic_exchange_would_give_it(
    pattern: str, key: str, *, taken: bool
) -> None:
    assert matches(pattern, key) is taken


@pytest.mark.parametrize(
    ("exchange", "key", "code", "missed"),
    [
        ("harebell.delay", "1500", Unroutable.code, True),
        ("harebell.work", "default.normal", Unroutable.code, True),
        ("harebell.work", "nobodys.normal", Unroutable.code, False),
        ("harebell.events", "acme.run.succeeded", Unroutable.code, False),
        ("harebell.events", "acme.run.succeeded", NO_EXCHANGE, True),
        ("", "somebodys-answers", Unroutable.code, False),
        ("acme.jobs", "report", NO_EXCHANGE, False),
    ],
)
def test_only_what_the_topology_promises_is_missed(
    exchange: str, key: str, code: str, *, missed: bool
) -> None:
    upkeep = TopologyKeeper(SYSTEM, declares=True)

    upkeep.on_unroutable(exchange, key, Unroutable("returned", code=code))

    assert upkeep.is_broken is missed
