"""What a dispatcher hears of attempts and of breakers, and what it tells of its own."""

import asyncio
import secrets
from typing import Final

import structlog
from aio_pika.abc import AbstractIncomingMessage
from pamqp.common import FieldValue
from pydantic import TypeAdapter

from harebell.bootstrap.service_context import ServiceContext
from harebell.contract import amqp_names
from harebell.contract.amqp_names import check_version, split_key
from harebell.contract.breakers import (
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotRequest,
    BreakerState,
)
from harebell.contract.errors import BrokerUnavailable, InvalidInput, Unroutable
from harebell.contract.events import Event, make_event
from harebell.contract.json_codec import decode_model, decode_trusted, encode, list_adapter
from harebell.contract.message import parse
from harebell.dispatcher import metrics
from harebell.dispatcher.breakers.registry import BREAKER_GATE, BreakerRegistry
from harebell.dispatcher.release.gates import Gates
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.exclusive_consumer import ExclusiveQueue, consume_exclusively
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.topology.bus import (
    ALL_BREAKER_EVENTS,
    BREAKER_SNAPSHOT_KEY,
    BREAKER_SNAPSHOT_REQUEST_KEY,
    dispatcher_control_queue,
)
from harebell.runtime.clock import Clock

PUBLISH_INTERVAL: Final = 0.2  # seconds between looks at what has changed
TIDY_EVERY: Final = 5.0  # seconds
MAX_SHOWN: Final = 100  # downstreams that are a metric's label, of those that are not closed
MAX_QUEUED_OUTCOMES: Final = 10_000  # messages of outcomes that wait; the oldest go first
INSTANCE_BYTES: Final = 4

SUCCEEDED: Final = "run.succeeded"
ATTEMPT_EVENTS: Final = (SUCCEEDED, "run.retrying", "run.dead", "run.expired")
VERBS: Final = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_opened",
    BreakerState.CLOSED: "breaker.closed",
}

_EVENTS: Final = list_adapter(Event)
_STANDING: Final = TypeAdapter(BreakerSnapshot)

log = structlog.get_logger()


class BreakerSync:
    """Keeps `breakers` in the know, and the world of them."""

    def __init__(self, parts: ServiceContext, breakers: BreakerRegistry, gates: Gates) -> None:
        self._parts = parts
        self._breakers = breakers
        self._instance = f"{parts.settings.instance_id}-{secrets.token_hex(INSTANCE_BYTES)}"
        self._told = asyncio.Event()
        self._shown: set[str] = set()
        metrics.DEFERRED_TICKETS.labels(BREAKER_GATE).set_function(
            lambda: gates.deferred_count(BREAKER_GATE, self._clock.now())
        )

    @property
    def _clock(self) -> Clock:
        return self._parts.clock

    async def wait_for_snapshot(self, patience: float) -> None:
        """Until it is known what is forced open: what was held before a restart stays held.

        No longer than `patience`, in seconds: without a ticker runs leave all the same.
        """
        stopped = asyncio.create_task(self._parts.stop.wait())
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait([stopped, told], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        told.cancel()
        if not self._told.is_set() and not self._parts.stop.is_set():
            log.warning("no ticker has told of breakers", waited=patience)

    async def run(self) -> None:
        """Until cancelled."""
        outcomes = [(amqp_names.EVENTS, f"*.{verb}") for verb in ATTEMPT_EVENTS]
        told = [(amqp_names.CONTROL, BREAKER_SNAPSHOT_KEY), (amqp_names.EVENTS, ALL_BREAKER_EVENTS)]
        bound: dict[str, FieldValue] = {
            "x-max-length": MAX_QUEUED_OUTCOMES,
            "x-overflow": "drop-head",
        }
        ear = ExclusiveQueue(dispatcher_control_queue(self._instance), [*outcomes, *told], bound)
        listening = consume_exclusively(self._parts.connect, ear, self._hear, opened=self._ask)
        async with asyncio.TaskGroup() as group:
            for work in (listening, self._keep_telling(), self._keep_tidy()):
                group.create_task(work)

    async def _ask(self) -> None:
        """How breakers stand: whatever was told before is missed."""
        asking = OutgoingMessage(
            exchange=amqp_names.CONTROL,
            routing_key=BREAKER_SNAPSHOT_REQUEST_KEY,
            body=encode(BreakerSnapshotRequest(dispatcher=self._instance)),
            type=amqp_names.message_type("breaker.snapshot_request"),
            message_id=f"{self._instance}/asking",
        )
        try:
            await self._parts.publisher.publish(asking)
        except (BrokerUnavailable, Unroutable) as error:
            log.warning("breakers not asked about", error=error.code, reason=error.reason)

    async def _hear(self, message: AbstractIncomingMessage) -> None:
        """Raises `Malformed`."""
        check_version(message.type)
        if message.exchange == amqp_names.CONTROL:
            self._breakers.apply_snapshot(decode_model(_STANDING, message.body))
            self._told.set()
            return
        _, verb = split_key(message.routing_key or "")
        if verb in ATTEMPT_EVENTS:
            self._hear_outcomes(verb, message.body)
        elif verb in VERBS.values():
            for each in decode_model(_EVENTS, message.body):
                self._breakers.apply_event(parse(BreakerEventData, each.data))

    def _hear_outcomes(self, verb: str, body: bytes) -> None:
        """Many: of each only two fields are read, and of successes none while nothing fails."""
        if verb == SUCCEEDED and not self._breakers.watches:
            return
        now = self._clock.now()
        try:
            for fact in [each["data"] for each in decode_trusted(body)]:
                if (healthy := fact.get("healthy")) is not None:
                    self._breakers.record_outcome(fact["downstream"], now, healthy=healthy)
        except (AttributeError, KeyError, TypeError) as error:
            raise InvalidInput(f"not outcomes: {error}") from None

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_INTERVAL)
            if facts := self._breakers.take_unpublished():
                for fact in facts:
                    log.warning("breaker", downstream=fact.downstream, state=fact.state)
                await publish_events(self._parts.publisher, map(_told, facts))

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY)
            now = self._clock.now()
            self._breakers.prune(now)
            self._show(dict(self._breakers.not_closed(now)))

    def _show(self, standing: dict[str, BreakerState]) -> None:
        """What is closed has no row: labels stay as few as the troubles."""
        for state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
            metrics.BREAKERS.labels(state).set(sum(each is state for each in standing.values()))
        shown = sorted(standing)[:MAX_SHOWN]
        for name in self._shown.difference(shown):
            metrics.BREAKER_OPEN.remove(name)
        for name in shown:
            metrics.BREAKER_OPEN.labels(name).set(1)
        self._shown = set(shown)


def _told(fact: BreakerEventData) -> OutgoingEvent:
    verb = VERBS[fact.state]
    id_ = f"{fact.downstream}/{fact.since.isoformat()}"
    told = make_event(
        amqp_names.OPERATIONS_TENANT, verb, fact, id_=id_, subject=fact.downstream, at=fact.since
    )
    return OutgoingEvent(amqp_names.OPERATIONS_TENANT, verb, told)
