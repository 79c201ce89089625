"""Turns the topology's value into declarations, or into a list of what the broker lacks."""

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelClosed

from harebell.client.connection import link_faults
from harebell.kernel.topology import Exchange, Queue, Topology


async def declare(connection: AbstractConnection, topology: Topology) -> None:
    """Idempotent. Raises `BrokerUnavailable` when what is there differs, naming it."""
    with link_faults("the topology cannot be declared"):
        async with connection.channel() as channel:
            await _declare(channel, topology)


async def _declare(channel: AbstractChannel, topology: Topology) -> None:
    for exchange in topology.exchanges:
        await channel.declare_exchange(
            exchange.name, aio_pika.ExchangeType(exchange.kind.value), durable=True
        )
    for queue in topology.queues:
        await channel.declare_queue(queue.name, durable=True, arguments={**queue.arguments()})
    for binding in topology.bindings:
        bound = await channel.get_queue(binding.queue, ensure=False)
        await bound.bind(binding.exchange, binding.routing_key)


async def check(connection: AbstractConnection, topology: Topology) -> list[str]:
    """What is missing, or differs from its declaration; nothing is created."""
    wanted: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
    with link_faults("the topology cannot be checked"):
        problems = [await _problem(connection, item) for item in wanted]
    return [problem for problem in problems if problem is not None]


async def _problem(connection: AbstractConnection, item: Exchange | Queue) -> str | None:
    channel = await connection.channel()  # a refused declaration closes its channel
    try:
        match item:
            case Exchange(name, _):
                await channel.declare_exchange(name, passive=True)
            case Queue(name):
                await channel.declare_queue(name, passive=True)
                await channel.declare_queue(name, durable=True, arguments={**item.arguments()})
    except ChannelClosed as error:
        return f"{item.name}: {error}"
    else:
        return None
    finally:
        if not channel.is_closed:
            await channel.close()
