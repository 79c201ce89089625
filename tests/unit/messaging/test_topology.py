"""The topology states whether one of its queues takes a message."""

import asyncio
from typing import cast
from unittest.mock import create_autospec

import pytest
from aio_pika.abc import AbstractConnection

from harebell.contract.errors import BrokerUnavailable, Unroutable
from harebell.messaging import topology_keeper
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.declarations import Topology, matches
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


async def test_declaration_that_fails_after_a_loss_is_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CONSUMER_CANCEL_TIME", "MIN_DECLARE_INTERVAL"):
        monkeypatch.setattr(topology_keeper, name, 0.0)
    keeper = TopologyKeeper(SYSTEM, declares=True)
    second = asyncio.Event()
    attempts = 0

    async def connect() -> AbstractConnection:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            second.set()
        raise BrokerUnavailable("The broker refuses connections.")

    keeper.on_unroutable("harebell.delay", "001500", Unroutable("The broker returned it."))
    running = asyncio.create_task(keeper.run(connect))
    async with asyncio.timeout(topology_keeper.REDECLARE_INTERVAL / 3):
        await second.wait()
    running.cancel()

    assert keeper.is_broken


async def test_loss_directly_after_a_declaration_causes_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topology_keeper, "CONSUMER_CANCEL_TIME", 0.0)
    keeper = TopologyKeeper(SYSTEM, declares=True)
    declared: list[AbstractConnection] = []
    second = asyncio.Event()

    async def declare(connection: AbstractConnection, topology: Topology) -> None:
        assert topology == SYSTEM
        declared.append(connection)
        if len(declared) > 1:
            second.set()

    async def connect() -> AbstractConnection:
        connection = create_autospec(AbstractConnection, is_closed=True)
        await keeper.ensure(connection)
        return cast("AbstractConnection", connection)

    monkeypatch.setattr(topology_keeper, "declare", declare)
    await connect()
    keeper.on_unroutable("harebell.delay", "001500", Unroutable("The broker returned it."))
    running = asyncio.create_task(keeper.run(connect))
    async with asyncio.timeout(topology_keeper.MIN_DECLARE_INTERVAL / 2):
        await second.wait()
    running.cancel()
