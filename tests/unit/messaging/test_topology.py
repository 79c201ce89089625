"""The topology states whether one of its queues takes a message."""

import pytest

from harebell.contract.errors import Unroutable
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.declarations import matches
from harebell.messaging.topology_keeper import TopologyKeeper

NO_EXCHANGE = "no_exchange"


@pytest.mark.parametrize(
    ("pattern", "key", "is_match"),
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
def test_pattern_matches_as_in_a_topic_exchange(pattern: str, key: str, *, is_match: bool) -> None:
    assert matches(pattern, key) is is_match


@pytest.mark.parametrize(
    ("exchange", "key", "code", "is_broken"),
    [
        ("harebell.delay", "001500", Unroutable.code, True),
        ("harebell.work", "default.normal", Unroutable.code, True),
        ("harebell.work", "unused.normal", Unroutable.code, False),
        ("harebell.events", "acme.run.succeeded", Unroutable.code, False),
        ("harebell.events", "acme.run.succeeded", NO_EXCHANGE, True),
        ("", "a-reply-queue", Unroutable.code, False),
        ("acme.jobs", "report", NO_EXCHANGE, False),
    ],
)
def test_topology_is_broken_only_when_it_should_have_routed_the_message(
    exchange: str, key: str, code: str, *, is_broken: bool
) -> None:
    keeper = TopologyKeeper(SYSTEM, declares=True)

    keeper.on_unroutable(exchange, key, Unroutable("The broker returned the message.", code=code))

    assert keeper.is_broken is is_broken
