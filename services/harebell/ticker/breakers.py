"""Circuit breakers on record: what dispatchers found, what people force; told to dispatchers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog
from pydantic import TypeAdapter

from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import split_key
from harebell.contract.breakers import (
    BREAKER_COMMANDS,
    MAX_SNAPSHOT_BREAKERS,
    BreakerClose,
    BreakerCommand,
    BreakerEventData,
    BreakerForcedEventData,
    BreakerOpen,
    BreakerResponse,
    BreakerState,
)
from harebell.contract.errors import InvalidInput, Rejected, Transient
from harebell.contract.events import EVENT_DATA, Event, make_event
from harebell.contract.json_codec import decode_model, encode, encode_all, list_adapter
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.replies import can_reply_to, reply, send_reply
from harebell.messaging.topology.bus import BREAKER_SNAPSHOT_KEY
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.ticker.store import breakers as store

BROADCAST_INTERVAL: Final = 30.0  # seconds between words to dispatchers when nothing has happened

FORCED_EVENT: Final = "breaker.forced"
RESET_EVENT: Final = "breaker.reset"

_CHANGE: Final = TypeAdapter(AcceptedCommands)
_EVENTS: Final = list_adapter(Event)

Answer: TypeAlias = BreakerResponse | ErrorResponse

log = structlog.get_logger()


@dataclass(slots=True)
class BreakerRecorder:
    """The handler of `harebell.breakers`, which one ticker at a time consumes; all tell."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        for delivery in deliveries:
            match delivery.message.exchange:
                case amqp_names.CHANGES:
                    await self._command(decode_model(_CHANGE, delivery.trusted_body))
                case amqp_names.EVENTS:
                    await self._found(delivery)
                case _:  # a dispatcher asks: the word to all is the answer
                    self._asked.set()
        return [DONE] * len(deliveries)

    async def run(self) -> None:
        """Until cancelled. What was lost on its way to dispatchers is told again."""
        while True:
            try:
                await self._lapse()
                await self.broadcast()
            except Transient as error:
                log.warning("breakers not told", error=error.code, reason=error.reason)
            try:
                await asyncio.wait_for(self._asked.wait(), BROADCAST_INTERVAL)
            except TimeoutError:
                continue

    async def broadcast(self) -> None:
        """To every dispatcher, how all breakers stand. Nobody need be there to hear it."""
        self._asked.clear()
        with translate_db_errors():
            standing = await store.load_snapshot(self.pool, self.clock.now())
        word = OutgoingMessage(
            exchange=amqp_names.CONTROL,
            routing_key=BREAKER_SNAPSHOT_KEY,
            body=encode(standing),
            type=amqp_names.message_type("breaker.snapshot"),
            message_id=f"breakers/{standing.as_of.isoformat()}",
        )
        await self.publisher.publish_each([word])

    async def _found(self, delivery: Delivery) -> None:
        """By a dispatcher; all of them have heard of it as this one has."""
        _, verb = split_key(delivery.routing_key)
        if EVENT_DATA.get(verb) is not BreakerEventData:
            return
        with translate_db_errors():
            for each in decode_model(_EVENTS, delivery.trusted_body):
                await store.record_state(self.pool, parse(BreakerEventData, each.data))

    async def _command(self, change: AcceptedCommands) -> None:
        said = [await self._item(change, item) for item in change.items]
        self._asked.set()
        if change.reply_to is None or not can_reply_to(change.reply_to):
            return
        body = encode(said[0]) if change.single else encode_all(said)
        name = f"{change.correlation_id}/response"
        await send_reply(
            self.publisher, reply(change.reply_to, change.correlation_id, body, message_id=name)
        )

    async def _item(self, change: AcceptedCommands, item: AcceptedCommand) -> Answer:
        if item.rejection is not None:
            return item.rejection
        try:
            command = _command(change.verb, item)
            return await self._force(change, item, command)
        except Rejected as error:
            return error_response(error, within="" if change.single else f"[{item.index}]")

    async def _force(
        self, change: AcceptedCommands, item: AcceptedCommand, command: BreakerCommand
    ) -> Answer:
        forced, until = _wanted(command)
        at = change.accepted_at
        with translate_db_errors():
            if (
                forced
                and await store.count_other_forced(self.pool, command.downstream)
                >= MAX_SNAPSHOT_BREAKERS
            ):
                raise InvalidInput(
                    f"over {MAX_SNAPSHOT_BREAKERS} breakers are forced", code="too_many"
                )
            is_new = await store.force(
                self.pool, command.downstream, forced, at,
                until=until, note=command.note, actor=change.actor,
            )  # fmt: skip
        if not is_new:
            return BreakerResponse(downstream=command.downstream, status="unchanged", until=until)
        fact = BreakerForcedEventData(
            downstream=command.downstream,
            forced=forced,
            since=at,
            until=until,
            note=command.note,
            actor=change.actor,
        )
        log.info("breaker ordered", downstream=fact.downstream, forced=forced, index=item.index)
        await publish_events(self.publisher, [_told(fact, at)])
        status = "automatic" if forced is None else f"forced_{forced}"
        return BreakerResponse(downstream=command.downstream, status=status, until=until)

    async def _lapse(self) -> None:
        with translate_db_errors():
            lapsed = await store.expire_forced(self.pool)
            await store.delete_forgotten(self.pool)
        facts = [
            BreakerForcedEventData(
                downstream=row["downstream"], since=row["forced_at"], note=row["note"]
            )
            for row in lapsed
        ]
        await publish_events(self.publisher, [_told(fact, fact.since) for fact in facts])


def _command(verb: str, item: AcceptedCommand) -> BreakerCommand:
    model = BREAKER_COMMANDS.get(verb)
    command = None if model is None else parse(model, item.body)
    if not isinstance(command, BreakerCommand):
        raise Rejected(f"{verb!r} is not a breaker's", code="unknown_command")
    return command


def _wanted(command: BreakerCommand) -> tuple[BreakerState | None, datetime | None]:
    match command:
        case BreakerOpen(until=until):
            return BreakerState.OPEN, until
        case BreakerClose(until=until):
            return BreakerState.CLOSED, until
        case _:
            return None, None


def _told(fact: BreakerForcedEventData, at: datetime) -> OutgoingEvent:
    verb = RESET_EVENT if fact.forced is None else FORCED_EVENT
    id_ = f"{fact.downstream}/{at.isoformat()}"
    told = make_event(
        amqp_names.OPERATIONS_TENANT, verb, fact, id_=id_, subject=fact.downstream, at=at
    )
    return OutgoingEvent(amqp_names.OPERATIONS_TENANT, verb, told)
