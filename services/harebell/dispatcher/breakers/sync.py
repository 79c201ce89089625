"""The connection of the breakers with RabbitMQ: outcomes and snapshots in, transitions out."""

import asyncio
import secrets
from collections.abc import Iterable
from itertools import groupby, islice
from operator import attrgetter
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
from harebell.dispatcher.breakers.registry import BREAKER_GATE, BreakerKey, BreakerRegistry
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

PUBLISH_INTERVAL: Final = 0.2  # seconds between two publications of transitions
PRUNE_INTERVAL: Final = 5.0  # seconds
MAX_LABELS: Final = 100  # downstreams that are label values, of those that are not closed
MAX_TENANT_LABELS: Final = 10  # of them of one tenant, so that no tenant hides the others
MAX_QUEUED_OUTCOMES: Final = 10_000  # messages in the control queue, which drops the oldest
INSTANCE_BYTES: Final = 4

SUCCEEDED: Final = "run.succeeded"
DELEGATED: Final = "run.delegated"
ATTEMPT_EVENTS: Final = (SUCCEEDED, DELEGATED, "run.retrying", "run.dead", "run.expired")
EVENT_OF_STATE: Final = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_opened",
    BreakerState.CLOSED: "breaker.closed",
}

_EVENTS: Final = list_adapter(Event)
_SNAPSHOT: Final = TypeAdapter(BreakerSnapshot)

log = structlog.get_logger()


class BreakerSync:
    """The consumer of the control queue of a dispatcher, and the publisher of its transitions."""

    def __init__(self, context: ServiceContext, breakers: BreakerRegistry, gates: Gates) -> None:
        self._context = context
        self._breakers = breakers
        self._instance = f"{context.settings.instance_id}-{secrets.token_hex(INSTANCE_BYTES)}"
        self._may_release = asyncio.Event()  # set by a snapshot, or after a wait without one
        self._labels: set[str] = set()
        metrics.DEFERRED_TICKETS.labels(BREAKER_GATE).set_function(
            lambda: gates.deferred_count(BREAKER_GATE, self._clock.now())
        )

    @property
    def _clock(self) -> Clock:
        return self._context.clock

    async def wait_for_snapshot(self, timeout: float) -> None:  # noqa: ASYNC109  # logged below
        """Wait for the first snapshot, the stop, or `timeout` seconds, and later not at all.

        A breaker that was open before a restart stays open. Without a ticker the tickets leave
        after the timeout.
        """
        stopped = asyncio.create_task(self._context.stop.wait())
        received = asyncio.create_task(self._may_release.wait())
        await asyncio.wait(
            [stopped, received], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        stopped.cancel()
        received.cancel()
        if not self._may_release.is_set() and not self._context.stop.is_set():
            log.warning("breaker snapshot missing", waited=timeout)
            self._may_release.set()

    async def run(self) -> None:
        """Consume, publish and prune until the task is cancelled."""
        outcomes = [(amqp_names.EVENTS, f"*.{verb}") for verb in ATTEMPT_EVENTS]
        breakers = [
            (amqp_names.CONTROL, BREAKER_SNAPSHOT_KEY),
            (amqp_names.EVENTS, ALL_BREAKER_EVENTS),
        ]
        arguments: dict[str, FieldValue] = {
            "x-max-length": MAX_QUEUED_OUTCOMES,
            "x-overflow": "drop-head",
        }
        queue = ExclusiveQueue(
            dispatcher_control_queue(self._instance), [*outcomes, *breakers], arguments
        )
        consuming = consume_exclusively(
            self._context.connect,
            queue,
            self._receive,
            accepts=self._context.is_from_service,
            on_open=self._request_snapshot,
        )
        async with asyncio.TaskGroup() as group:
            for coroutine in (consuming, self._publish_transitions(), self._prune()):
                group.create_task(coroutine)

    async def _request_snapshot(self) -> None:
        """Request a snapshot from the tickers, because earlier events are missed."""
        request = OutgoingMessage(
            exchange=amqp_names.CONTROL,
            routing_key=BREAKER_SNAPSHOT_REQUEST_KEY,
            body=encode(BreakerSnapshotRequest(dispatcher=self._instance)),
            type=amqp_names.message_type("breaker.snapshot_request"),
            message_id=f"{self._instance}/snapshot_request",
        )
        try:
            await self._context.publisher.publish(request)
        except (BrokerUnavailable, Unroutable) as error:
            log.warning("snapshot request failed", error=error.code, reason=error.reason)

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        """Apply a snapshot, an outcome or a breaker event. Raise `InvalidInput` for others."""
        check_version(message.type)
        if message.exchange == amqp_names.CONTROL:
            self._breakers.apply_snapshot(decode_model(_SNAPSHOT, message.body))
            self._may_release.set()
            return
        tenant, verb = split_key(message.routing_key or "")
        if verb in ATTEMPT_EVENTS:
            self._record_outcomes(tenant, verb, message.body)
        elif verb in EVENT_OF_STATE.values():
            for each in decode_model(_EVENTS, message.body):
                self._breakers.apply_event(parse(BreakerEventData, each.data))

    def _record_outcomes(self, tenant: str, verb: str, body: bytes) -> None:
        """Read two fields of each event of a tenant. Skip successes while no downstream fails."""
        if verb in {SUCCEEDED, DELEGATED} and not self._breakers.needs_successes:
            return
        now = self._clock.now()
        try:
            for data in [each["data"] for each in decode_trusted(body)]:
                if (healthy := data.get("healthy")) is not None:
                    key = BreakerKey(tenant, data["downstream"])
                    self._breakers.record_outcome(key, now, healthy=healthy)
        except (AttributeError, KeyError, TypeError) as error:
            reason = f"The body must be an array of run events: {error}."
            raise InvalidInput(reason) from None

    async def _publish_transitions(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_INTERVAL)
            if transitions := self._breakers.take_unpublished():
                for each in transitions:
                    log.warning(
                        "breaker changed",
                        tenant=each.tenant,
                        downstream=each.downstream,
                        state=each.state,
                    )
                await publish_events(self._context.publisher, map(_to_event, transitions))

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_INTERVAL)
            now = self._clock.now()
            self._breakers.prune(now)
            self._update_metrics(dict(self._breakers.not_closed(now)))

    def _update_metrics(self, not_closed: dict[BreakerKey, BreakerState]) -> None:
        """Set the gauges. A closed breaker has no series, which bounds their number."""
        for state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
            metrics.BREAKERS.labels(state).set(sum(each is state for each in not_closed.values()))
        labels = label_values(not_closed)
        for name in self._labels - labels:
            metrics.BREAKER_OPEN.remove(name)
        for name in labels:
            metrics.BREAKER_OPEN.labels(name).set(1)
        self._labels = labels


def label_values(not_closed: Iterable[BreakerKey]) -> set[str]:
    """Return the downstreams that have a series, at most MAX_TENANT_LABELS of one tenant."""
    by_tenant = groupby(sorted(not_closed), key=attrgetter("tenant"))
    few = (key.downstream for _, keys in by_tenant for key in islice(keys, MAX_TENANT_LABELS))
    return set(islice(dict.fromkeys(few), MAX_LABELS))


def _to_event(data: BreakerEventData) -> OutgoingEvent:
    """Return the event for the tenant concerned, or for the operators if all tenants are."""
    verb = EVENT_OF_STATE[data.state]
    tenant = data.tenant or amqp_names.OPERATIONS_TENANT
    event = make_event(
        tenant,
        verb,
        data,
        id_=f"{tenant}/{data.downstream}/{data.since.isoformat()}",
        subject=data.downstream,
        at=data.since,
    )
    return OutgoingEvent(tenant, verb, event)
