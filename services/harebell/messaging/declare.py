"""Turns the topology's value into declarations, or into a list of what the broker lacks."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ChannelClosed

from harebell.client.connection import ANSWER_TIMEOUT, open_probe_channel, translate_amqp_errors
from harebell.messaging.topology.declarations import Exchange, Queue, Topology

Probe: TypeAlias = Callable[[AbstractChannel, Exchange | Queue], Awaitable[None]]


async def declare(connection: AbstractConnection, topology: Topology) -> None:
    """Idempotent. Raises `BrokerUnavailable` when what is there differs, naming it."""
    with translate_amqp_errors("the topology cannot be declared"):
        async with open_probe_channel(connection) as channel:
            await _declare(channel, topology)


async def _declare(channel: AbstractChannel, topology: Topology) -> None:
    for exchange in topology.exchanges:
        await channel.declare_exchange(
            exchange.name,
            aio_pika.ExchangeType(exchange.kind.value),
            durable=True,
            timeout=ANSWER_TIMEOUT,
        )
    for queue in topology.queues:
        await channel.declare_queue(
            queue.name, durable=True, arguments={**queue.arguments()}, timeout=ANSWER_TIMEOUT
        )
    for binding in topology.bindings:
        bound = await channel.get_queue(binding.queue, ensure=False)
        await bound.bind(binding.exchange, binding.routing_key, timeout=ANSWER_TIMEOUT)


async def find_missing(connection: AbstractConnection, topology: Topology) -> list[str]:
    """What is not there. What this user has no right to at all is others' to look for."""
    return await _problems(connection, topology, _look_if_allowed)


async def find_differences(connection: AbstractConnection, topology: Topology) -> list[str]:
    """What is missing, or differs from its declaration; nothing is created.

    To compare takes the permission to configure what is compared.
    """
    return await _problems(connection, topology, _compare)


async def _look_if_allowed(channel: AbstractChannel, item: Exchange | Queue) -> None:
    with suppress(ChannelAccessRefused):  # since RabbitMQ 4: before that, whoever asks is told
        await _look(channel, item)


async def _look(channel: AbstractChannel, item: Exchange | Queue) -> None:
    match item:
        case Exchange(name, _):
            await channel.declare_exchange(name, passive=True)
        case Queue(name):
            await channel.declare_queue(name, passive=True)


async def _compare(channel: AbstractChannel, item: Exchange | Queue) -> None:
    """What is there already is not created by declaring it, only compared."""
    await _look(channel, item)
    match item:
        case Exchange(name, kind):
            await channel.declare_exchange(name, aio_pika.ExchangeType(kind.value), durable=True)
        case Queue(name):
            await channel.declare_queue(name, durable=True, arguments={**item.arguments()})


async def _problems(connection: AbstractConnection, topology: Topology, ask: Probe) -> list[str]:
    wanted: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
    with translate_amqp_errors("the topology cannot be checked"):
        problems = [await _problem(connection, item, ask) for item in wanted]
    return [problem for problem in problems if problem is not None]


async def _problem(
    connection: AbstractConnection, item: Exchange | Queue, ask: Probe
) -> str | None:
    async with open_probe_channel(connection) as channel:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await ask(channel, item)
        except ChannelClosed as error:
            return f"{item.name}: {error}"
        return None
