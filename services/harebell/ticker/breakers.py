"""The recorder of breakers: reported and forced states, and snapshots for the dispatchers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog

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
from harebell.contract.downstream import current_name
from harebell.contract.errors import InvalidInput, Rejected, Transient
from harebell.contract.events import EVENT_DATA, Event, make_event
from harebell.contract.json_codec import decode_model, encode, encode_all, list_adapter
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.contract.types import instant_text
from harebell.messaging.accepted_messages import CommandReplies, read_messages
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.sender_check import is_foreign
from harebell.messaging.topology.bus import BREAKER_SNAPSHOT_KEY
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.event_wait import wait_until_set
from harebell.storage.engine import translate_db_errors
from harebell.ticker.store import breakers as store

BROADCAST_INTERVAL: Final = 30.0  # seconds between snapshots without a change
FORGET_INTERVAL: Final = 600.0  # seconds between two deletions of old breakers and deferrals

FORCED_EVENT: Final = "breaker.forced"
RESET_EVENT: Final = "breaker.reset"
# The exchanges that are bound to the queue, and to which no tenant may publish.
EXCHANGES: Final = frozenset({amqp_names.CHANGES, amqp_names.CONTROL, amqp_names.EVENTS})

_EVENTS: Final = list_adapter(Event)

BreakerResult: TypeAlias = BreakerResponse | ErrorResponse

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class BreakerRecorder:
    """The handler of `harebell.breakers`, which one ticker at a time consumes.

    Every ticker broadcasts snapshots.
    """

    pool: asyncpg.Pool
    publisher: Publisher
    replies: CommandReplies
    clock: Clock
    _broadcast_requested: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Apply commands, record reported states and broadcast a snapshot on request."""
        for delivery in deliveries:
            exchange = delivery.message.exchange
            if is_foreign(delivery, exchange if exchange in EXCHANGES else amqp_names.CHANGES):
                continue
            match exchange:
                case amqp_names.CHANGES:
                    for message in read_messages(delivery):
                        await self._apply_commands(message)
                case amqp_names.EVENTS:
                    await self._record_events(delivery)
                case _:  # a snapshot request: the broadcast answers every dispatcher
                    self._broadcast_requested.set()
        return [DONE] * len(deliveries)

    async def run(self) -> None:
        """Broadcast snapshots until the task is cancelled, because a message may be lost."""
        forget_at = monotonic()
        while True:
            try:
                await self._expire_forced()
                await self.broadcast()
                with translate_db_errors():
                    await store.delete_surplus(self.pool)
                    if monotonic() >= forget_at:
                        await store.delete_forgotten(self.pool)
                        forget_at = monotonic() + FORGET_INTERVAL
            except Transient as error:
                log.warning("breaker broadcast failed", error=error.code, reason=error.reason)
            if not await wait_until_set(self._broadcast_requested, BROADCAST_INTERVAL):
                continue

    async def broadcast(self) -> None:
        """Publish a snapshot to every dispatcher. No dispatcher needs to be connected."""
        self._broadcast_requested.clear()
        with translate_db_errors():
            snapshot = await store.load_snapshot(self.pool, self.clock.now())
        message = OutgoingMessage(
            exchange=amqp_names.CONTROL,
            routing_key=BREAKER_SNAPSHOT_KEY,
            body=encode(snapshot),
            type=amqp_names.message_type("breaker.snapshot"),
            message_id=f"breakers/{snapshot.as_of.isoformat()}",
        )
        await self.publisher.publish_each([message])

    async def _record_events(self, delivery: Delivery) -> None:
        """Record the states that a dispatcher reported. Every dispatcher received the event too."""
        _, verb = split_key(delivery.routing_key)
        if EVENT_DATA.get(verb) is not BreakerEventData:
            return
        with translate_db_errors():
            for event in decode_model(_EVENTS, delivery.trusted_body):
                await store.record_state(self.pool, parse(BreakerEventData, event.data))

    async def _apply_commands(self, message: AcceptedCommands) -> None:
        results = [await self._apply_item(message, item) for item in message.items]
        self._broadcast_requested.set()
        body = encode(results[0]) if message.single else encode_all(results)
        self.replies.send(message, body)

    async def _apply_item(self, message: AcceptedCommands, item: AcceptedCommand) -> BreakerResult:
        if item.rejection is not None:
            return item.rejection
        try:
            return await self._force(message, item, _parse_command(message.verb, item))
        except Rejected as error:
            return error_response(error, within="" if message.single else f"[{item.index}]")

    async def _force(
        self, message: AcceptedCommands, item: AcceptedCommand, command: BreakerCommand
    ) -> BreakerResponse:
        forced, until = _forced_state(command)
        at = message.accepted_at
        downstream = current_name(command.downstream) or command.downstream
        tenant = command.for_tenant
        name = store.BreakerName(downstream, tenant)
        with translate_db_errors():
            if forced is not None:
                await self._check_forced_count(name)
            is_stored = await store.force(
                self.pool,
                name,
                forced,
                at=at,
                until=until,
                note=command.note,
                actor=message.actor,
            )
        if not is_stored:
            return BreakerResponse(
                downstream=downstream, tenant=tenant, status="unchanged", until=until
            )
        data = BreakerForcedEventData(
            downstream=downstream,
            tenant=tenant,
            forced=forced,
            since=at,
            until=until,
            note=command.note,
            actor=message.actor,
            text=_forced_text(name, forced, until=until, actor=message.actor),
        )
        log.info(
            "breaker forced", tenant=tenant, downstream=downstream, forced=forced, index=item.index
        )
        await publish_events(self.publisher, [_to_event(data, at)])
        status = "automatic" if forced is None else f"forced_{forced}"
        return BreakerResponse(downstream=downstream, tenant=tenant, status=status, until=until)

    async def _check_forced_count(self, name: store.BreakerName) -> None:
        others = await store.count_other_forced(self.pool, name)
        if others >= MAX_SNAPSHOT_BREAKERS:
            raise InvalidInput(
                f"The number of other forced breakers must be below {MAX_SNAPSHOT_BREAKERS}, "
                f"not {others}.",
                code="too_many",
            )

    async def _expire_forced(self) -> None:
        with translate_db_errors():
            expired = await store.expire_forced(self.pool)
        data = [
            BreakerForcedEventData(
                downstream=row["downstream"],
                tenant=row.get(store.TENANT),
                since=row["forced_at"],
                note=row["note"],
                text=_forced_text(store.name_of(row), None, until=None, actor=None),
            )
            for row in expired
        ]
        await publish_events(self.publisher, [_to_event(each, each.since) for each in data])


def _parse_command(verb: str, item: AcceptedCommand) -> BreakerCommand:
    model = BREAKER_COMMANDS.get(verb)
    command = None if model is None else parse(model, item.body)
    if not isinstance(command, BreakerCommand):
        raise Rejected(
            f"The command must be a breaker command, not {verb!r}.", code="unknown_command"
        )
    return command


def _forced_state(command: BreakerCommand) -> tuple[BreakerState | None, datetime | None]:
    match command:
        case BreakerOpen(until=until):
            return BreakerState.OPEN, until
        case BreakerClose(until=until):
            return BreakerState.CLOSED, until
        case _:
            return None, None


def _forced_text(
    name: store.BreakerName,
    forced: BreakerState | None,
    *,
    until: datetime | None,
    actor: str | None,
) -> str:
    """Return the change of a forced state and its effect on runs as sentences."""
    owner = name.tenant or "all tenants"
    subject = f"The circuit breaker of {name.downstream} for {owner}"
    by = f" by {actor}" if actor else ""
    end = f" until {instant_text(until)}" if until else ""
    match forced:
        case None:
            return f"{subject} was reset{by}. The outcomes of attempts decide its state again."
        case BreakerState.OPEN:
            return f"{subject} was forced open{by}{end}. Runs for it wait without using attempts."
        case _:
            return f"{subject} was forced closed{by}{end}. Runs for it start after failures too."


def _to_event(data: BreakerForcedEventData, at: datetime) -> OutgoingEvent:
    verb = RESET_EVENT if data.forced is None else FORCED_EVENT
    tenant = data.tenant or amqp_names.OPERATIONS_TENANT
    # The commands of one batch have one time, so an open and a close could have the same id.
    id_ = f"{tenant}/{data.downstream}/{at.isoformat()}/{data.forced or 'reset'}"
    event = make_event(tenant, verb, data, id_=id_, subject=data.downstream, at=at)
    return OutgoingEvent(tenant, verb, event)
