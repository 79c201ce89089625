"""Declaration of a topology, and its comparison with the exchanges and queues of a broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ChannelClosed

from harebell.connection.amqp import (
    BROKER_REPLY_TIMEOUT,
    open_probe_channel,
    translate_amqp_errors,
)
from harebell.messaging.topology.declarations import Exchange, Queue, Topology

Probe: TypeAlias = Callable[[AbstractChannel, Exchange | Queue], Awaitable[None]]


async def declare(connection: AbstractConnection, topology: Topology) -> None:
    """Declare the topology. A repeated declaration changes nothing.

    Raise `BrokerUnavailable` with the name of an exchange or queue that exists with other
    arguments.
    """
    with translate_amqp_errors("The topology cannot be declared"):
        async with open_probe_channel(connection) as channel:
            await _declare(channel, topology)


async def _declare(channel: AbstractChannel, topology: Topology) -> None:
    for exchange in topology.exchanges:
        await channel.declare_exchange(
            exchange.name,
            aio_pika.ExchangeType(exchange.kind.value),
            durable=True,
            arguments={**exchange.arguments()},
            timeout=BROKER_REPLY_TIMEOUT,
        )
    for queue in topology.queues:
        await channel.declare_queue(
            queue.name, durable=True, arguments={**queue.arguments()}, timeout=BROKER_REPLY_TIMEOUT
        )
    for binding in topology.bindings:
        bound_queue = await channel.get_queue(binding.queue, ensure=False)
        await bound_queue.bind(binding.exchange, binding.routing_key, timeout=BROKER_REPLY_TIMEOUT)


async def find_missing(connection: AbstractConnection, topology: Topology) -> list[str]:
    """Return an error for each missing exchange and queue that this user has a permission for."""
    return await _find_errors(connection, topology, _check_exists_if_permitted)


async def find_differences(connection: AbstractConnection, topology: Topology) -> list[str]:
    """Return an error for each exchange and queue that is missing or has other arguments.

    The function creates nothing and needs the permission to configure each exchange and queue.
    """
    return await _find_errors(connection, topology, _compare)


async def find_unconsumed(connection: AbstractConnection, queues: Iterable[str]) -> list[str]:
    """Return the queues that exist and have no consumer."""
    found: list[str] = []
    with translate_amqp_errors("The consumers cannot be checked"):
        for name in queues:
            async with open_probe_channel(connection) as channel:
                with suppress(ChannelClosed):  # `find_differences` reports a missing queue
                    queue = await channel.declare_queue(name, passive=True)
                    if not queue.declaration_result.consumer_count:
                        found.append(name)
    return found


async def _check_exists_if_permitted(channel: AbstractChannel, item: Exchange | Queue) -> None:
    # RabbitMQ 4 refuses a passive declaration without a permission. Older versions answer it.
    with suppress(ChannelAccessRefused):
        await _check_exists(channel, item)


async def _check_exists(channel: AbstractChannel, item: Exchange | Queue) -> None:
    match item:
        case Exchange(name=name):
            await channel.declare_exchange(name, passive=True)
        case Queue(name=name):
            await channel.declare_queue(name, passive=True)


async def _compare(channel: AbstractChannel, item: Exchange | Queue) -> None:
    """Declare an existing item, which makes the broker compare the arguments."""
    await _check_exists(channel, item)
    match item:
        case Exchange(name=name, kind=kind):
            await channel.declare_exchange(
                name,
                aio_pika.ExchangeType(kind.value),
                durable=True,
                arguments={**item.arguments()},
            )
        case Queue(name=name):
            await channel.declare_queue(name, durable=True, arguments={**item.arguments()})


async def _find_errors(
    connection: AbstractConnection, topology: Topology, probe: Probe
) -> list[str]:
    items: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
    with translate_amqp_errors("The topology cannot be checked"):
        errors = [await _find_error(connection, item, probe) for item in items]
    return [error for error in errors if error is not None]


async def _find_error(
    connection: AbstractConnection, item: Exchange | Queue, probe: Probe
) -> str | None:
    async with open_probe_channel(connection) as channel:
        try:
            async with asyncio.timeout(BROKER_REPLY_TIMEOUT):
                await probe(channel, item)
        except ChannelClosed as error:
            return f"{item.name}: {error}"
        return None
