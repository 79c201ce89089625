"""The handler of `harebell.intake`: a batch of messages is checked, published, acknowledged."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog
from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import Rejected
from harebell.domain.sender import Sender
from harebell.intake.commands.check import (
    CheckResult,
    IncomingRequest,
    check_steps,
    too_expensive,
)
from harebell.intake.commands.publish import (
    accepted_commands_message,
    is_for_ticker,
    rejection_events,
    rejection_reply,
)
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.commands.window import TenantWindows
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.credits import credit_headers
from harebell.messaging.fair_worker import size_of
from harebell.messaging.publisher import Publisher
from harebell.messaging.rejection_events import RejectionEvents
from harebell.messaging.replies import send_reply
from harebell.messaging.sender_check import SenderCheck, stable_message_id
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock, thread_cpu

MAX_CHECK_CPU: Final = 1.0  # seconds of CPU time for one message
MAX_UNINTERRUPTED_CPU: Final = 0.01  # seconds of CPU time before another task may run

log = structlog.get_logger()


class CommandHandler:
    """The handler that passes commands on or rejects them, in the order of their arrival."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        policy: IntakePolicy,
        *,
        sender_check: SenderCheck,
        rejection_events: RejectionEvents,
        windows: TenantWindows | None = None,
        credit_queue: str = "",
        cpu: Callable[[], float] = thread_cpu,
    ) -> None:
        self._windows = windows
        self._credit_queue = credit_queue
        self._publisher = publisher
        self._cpu = cpu
        self._clock = clock
        self._policy = policy
        self._sender_check = sender_check
        self._rejection_events = rejection_events
        self._accepted_at: datetime | None = None

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Check and publish a batch, and return the outcome of each delivery.

        A crash before the acknowledgement publishes the messages twice.
        The receivers recognise a repeated request by its id.
        """
        accepted_at = self._next_accepted_at()
        results = [await self._admit(delivery, accepted_at) for delivery in deliveries]
        checked = [
            (delivery, result)
            for delivery, result in zip(deliveries, results, strict=True)
            if isinstance(result, CheckResult)
        ]
        messages = [(stable_message_id(delivery), result) for delivery, result in checked]
        outgoing = [
            accepted_commands_message(
                result.accepted,
                message_id=stable_message_id(delivery),
                headers=self._credit_headers(delivery, result),
            )
            for delivery, result in checked
            if not result.is_rejected
        ]
        await failpoint.reach("intake.before_publish")
        await self._publisher.publish_all(outgoing)
        await failpoint.reach("intake.after_publish")
        await self._publish_rejections(messages)
        await asyncio.gather(
            *(
                self._sender_check.refuse(delivery, result)
                for delivery, result in zip(deliveries, results, strict=True)
                if isinstance(result, Rejected)
            )
        )
        for _, result in messages:
            _record(result)
        return [_outcome(result) for result in results]

    async def _admit(self, delivery: Delivery, accepted_at: datetime) -> CheckResult | Rejected:
        """Return the checked items, or the error of a delivery that the check refuses."""
        try:
            sender = self._sender_check.sender_of(delivery, amqp_names.COMMANDS)
        except Rejected as error:
            return error
        return await self._check(read_request(delivery, sender), accepted_at)

    def _credit_headers(self, delivery: Delivery, result: CheckResult) -> Mapping[str, FieldValue]:
        """Count the message in the window of its tenant, which a credit of the ticker opens."""
        if self._windows is None or not is_for_ticker(result.accepted):
            return {}
        number = self._windows.reserve(delivery.queue, size_of(delivery))
        if number is None:
            return {}
        return credit_headers(self._credit_queue, number, tenant=result.accepted.tenant)

    async def _check(self, request: IncomingRequest, accepted_at: datetime) -> CheckResult:
        """Check a message within its bound of CPU time, and let other tasks run in between.

        Consumers answer heartbeats and other tenants' messages arrive between two steps.
        """
        steps = check_steps(request, accepted_at=accepted_at, policy=self._policy)
        spent, started = 0.0, self._cpu()
        while True:
            uninterrupted = self._cpu() - started
            try:
                if spent + uninterrupted > MAX_CHECK_CPU:
                    steps.throw(too_expensive(MAX_CHECK_CPU))
                next(steps)
            except StopIteration as end:
                await asyncio.sleep(0)
                result: CheckResult = end.value
                return result
            if uninterrupted > MAX_UNINTERRUPTED_CPU:
                await asyncio.sleep(0)
                spent, started = spent + uninterrupted, self._cpu()

    def _next_accepted_at(self) -> datetime:
        """Return the time of the clock, but never a time before the previous one.

        The ticker rejects commands that are older than the commands that it has applied.
        """
        now = self._clock.now()
        self._accepted_at = now if self._accepted_at is None else max(now, self._accepted_at)
        return self._accepted_at

    async def _publish_rejections(self, messages: Sequence[tuple[str, CheckResult]]) -> None:
        replies = [rejection_reply(result, message_id=id_) for id_, result in messages]
        await asyncio.gather(
            *(send_reply(self._publisher, reply) for reply in replies if reply is not None)
        )
        await self._rejection_events.publish(
            event
            for message_id, result in messages
            for event in rejection_events(result, message_id=message_id)
        )


def read_request(delivery: Delivery, sender: Sender) -> IncomingRequest:
    """Return the body and the properties that intake reads from an admitted delivery."""
    message = delivery.message
    return IncomingRequest(
        routing_key=delivery.routing_key,
        body=delivery.body,
        message_id=delivery.message_id,
        reply_to=message.reply_to or None,
        correlation_id=message.correlation_id,
        sender=sender,
        type=message.type,
    )


def _outcome(result: CheckResult | Rejected) -> Outcome:
    error = None if isinstance(result, Rejected) else result.not_json_error
    return DONE if error is None else DeadLettered(error.code, error.reason)


def _record(result: CheckResult) -> None:
    """Count the items of a message, and log its first rejection."""
    accepted, rejected = result.accepted, len(result.rejections)
    # A label must not take its values from users, because Prometheus stores each value.
    verb = accepted.verb if accepted.verb in COMMANDS else "unknown"
    runtime_metrics.COMMANDS.labels(verb, "accepted").inc(len(accepted.items) - rejected)
    runtime_metrics.COMMANDS.labels(verb, "rejected").inc(rejected)
    for rejection in result.rejections:
        error = rejection.response.error
        if error.rule is not None:
            runtime_metrics.POLICY_REFUSALS.labels(error.code, error.rule).inc()
    if rejected:
        first = result.rejections[0].response.error
        log.info(
            "commands rejected",
            tenant=accepted.tenant,
            verb=accepted.verb,
            rejected=rejected,
            error=first.code,
            field=first.field,
        )
