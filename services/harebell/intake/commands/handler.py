"""The handler of `harebell.intake`: a batch of messages is checked, published, acknowledged.

Each message has a span, to which the runs of its schedules refer.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import structlog
from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.amqp_names import split_key
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import Rejected, TooExpensive
from harebell.contract.trace import read_trace
from harebell.domain.sender import Sender
from harebell.domain.trace_relation import SpanRelation
from harebell.domain.usage_counts import PUTS, UsageCounts, UsageKey
from harebell.intake.commands.check import (
    CheckResult,
    IncomingRequest,
    MessageCheck,
    reject_message,
)
from harebell.intake.commands.publish import (
    accepted_batch_message,
    accepted_commands_message,
    grants_credits,
    is_for_ticker,
    rejection_events,
    rejection_reply,
)
from harebell.intake.commands.rules import IntakePolicy
from harebell.messaging.accepted_messages import TenantWindows, credit_headers
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.event_publisher import RejectionEvents
from harebell.messaging.fair_worker import size_of
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.replies import ReplySender
from harebell.messaging.sender_check import SenderCheck, stable_message_id
from harebell.runtime import failpoint, spans
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock, thread_cpu
from harebell.runtime.spans import ActiveSpan

PUT: Final = "schedule.put"
CREATE: Final = "create schedule"  # the name of the span of a put
MAX_CHECK_CPU: Final = 1.0  # seconds of CPU time for one message
MAX_UNINTERRUPTED_CPU: Final = 0.01  # seconds of CPU time before another task may run

CHANGE_VERBS: Final = frozenset({"schedule.put", "schedule.patch", "schedule.trigger"})

log = structlog.get_logger()


def start_command(request: IncomingRequest) -> ActiveSpan | None:
    """Start the span of a command, or return None without tracing."""
    tracer = spans.current()
    if tracer is None:
        return None
    tenant, verb = split_key(request.routing_key)
    verb = verb if verb in COMMANDS else "unknown"
    span = tracer.start(CREATE if verb == PUT else verb, "CONSUMER", SpanRelation(request.trace))
    span.set(
        messaging__system="rabbitmq",
        messaging__operation__type="process",
        messaging__operation__name=verb,
        messaging__destination__name=amqp_names.COMMANDS,
        harebell__tenant=tenant[: spans.MAX_ATTRIBUTE],
    )
    return span


def with_span(request: IncomingRequest, span: ActiveSpan) -> IncomingRequest:
    """Return the request with the trace that its runs keep.

    The context of a command without a publisher's trace is stored only if its span is recorded.
    """
    is_kept = request.trace is not None or span.is_recording
    return replace(request, trace=span.context) if is_kept else request


def end_command(span: ActiveSpan, result: CheckResult) -> None:
    """End the span with the number of items and the code of the first rejection."""
    span.set(messaging__batch__message_count=len(result.accepted.items))
    if result.rejections:
        span.fail(result.rejections[0].response.error.code)
    span.end()


class CommandHandler:
    """The handler that passes commands on or rejects them, in the order of their arrival."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        policy: IntakePolicy,
        *,
        replies: ReplySender,
        sender_check: SenderCheck,
        rejection_events: RejectionEvents,
        windows: TenantWindows | None = None,
        credit_queue: str = "",
        usage: UsageCounts | None = None,
        cpu: Callable[[], float] = thread_cpu,
    ) -> None:
        self._windows = windows
        self._usage = usage or UsageCounts()
        self._credit_queue = credit_queue
        self._publisher = publisher
        self._replies = replies
        self._cpu = cpu
        self._clock = clock
        self._policy = policy
        self._sender_check = sender_check
        self._rejection_events = rejection_events
        self._accepted_at: datetime | None = None
        self._measured_at = 0.0  # CPU seconds of the thread
        self._uninterrupted = 0.0  # CPU seconds since another task could run

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Check and publish a batch, and return the outcome of each delivery.

        A crash before the acknowledgement publishes the messages twice.
        The receivers recognise a repeated request by its id.
        """
        accepted_at = self._next_accepted_at()
        self._measured_at, self._uninterrupted = self._cpu(), 0.0
        results = [await self._admit(delivery, accepted_at) for delivery in deliveries]
        checked = [
            (delivery, result)
            for delivery, result in zip(deliveries, results, strict=True)
            if isinstance(result, CheckResult)
        ]
        messages = [(stable_message_id(delivery), result) for delivery, result in checked]
        outgoing = self._outgoing(checked)
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
        _count([result for _, result in messages])
        for _, result in messages:
            _record_rejections(result)
            count_usage(self._usage, result)
        return [_outcome(result) for result in results]

    async def _admit(self, delivery: Delivery, accepted_at: datetime) -> CheckResult | Rejected:
        """Return the checked items, or the error of a delivery that the check refuses."""
        try:
            sender = self._sender_check.sender_of(delivery, amqp_names.COMMANDS)
        except Rejected as error:
            return error
        request = read_request(delivery, sender)
        span = start_command(request)
        if span is None:
            return await self._check(request, accepted_at)
        result = await self._check(with_span(request, span), accepted_at)
        end_command(span, result)
        return result

    def _outgoing(
        self, checked: Sequence[tuple[Delivery, CheckResult]]
    ) -> Sequence[OutgoingMessage]:
        """Return the messages with the accepted commands, one per queue for the ticker.

        Commands of one queue keep their order, and different queues have none.
        Reports, and commands about dead letters, are messages of their own.
        """
        by_queue: dict[str, list[tuple[Delivery, CheckResult]]] = defaultdict(list)
        outgoing = []
        for delivery, result in checked:
            if result.is_rejected:
                continue
            if is_for_ticker(result.accepted):
                by_queue[delivery.queue].append((delivery, result))
            else:
                outgoing.append(self._message(delivery.queue, [(delivery, result)]))
        outgoing += [self._message(queue, group) for queue, group in by_queue.items()]
        return outgoing

    def _message(
        self, queue: str, group: Sequence[tuple[Delivery, CheckResult]]
    ) -> OutgoingMessage:
        message_ids = [stable_message_id(delivery) for delivery, _ in group]
        commands = [result.accepted for _, result in group]
        size = sum(size_of(delivery) for delivery, _ in group)
        headers: Mapping[str, FieldValue] = {}
        if grants_credits(commands[0]):
            headers = self._credit_headers(queue, size, tenant=commands[0].tenant)
        if len(group) == 1:
            return accepted_commands_message(
                commands[0], message_id=message_ids[0], headers=headers
            )
        return accepted_batch_message(commands, message_ids=message_ids, headers=headers)

    def _credit_headers(self, queue: str, size: int, *, tenant: str) -> Mapping[str, FieldValue]:
        """Count the commands in the window of their tenant, which a credit opens."""
        number = None if self._windows is None else self._windows.reserve(queue, size)
        return {} if number is None else credit_headers(self._credit_queue, number, tenant=tenant)

    async def _check(self, request: IncomingRequest, accepted_at: datetime) -> CheckResult:
        """Check a message within its bound of CPU time."""
        try:
            message = MessageCheck.begin(request, accepted_at=accepted_at, policy=self._policy)
            items, spent = [], 0.0
            for item in message.items():
                items.append(item)
                spent += await self._spend()
                if spent > MAX_CHECK_CPU:
                    raise TooExpensive(
                        f"The check of the message must need at most {MAX_CHECK_CPU:g} s of CPU "
                        "time, not more."
                    )
        except Rejected as error:
            return reject_message(request, accepted_at, error)
        return message.result(items)

    async def _spend(self) -> float:
        """Return the CPU seconds since the last call, and let other tasks run now and then.

        Consumers answer heartbeats and other tenants' messages arrive between two steps.
        """
        now = self._cpu()
        spent, self._measured_at = now - self._measured_at, now
        self._uninterrupted += spent
        if self._uninterrupted > MAX_UNINTERRUPTED_CPU:
            await asyncio.sleep(0)
            self._measured_at, self._uninterrupted = self._cpu(), 0.0
        return spent

    def _next_accepted_at(self) -> datetime:
        """Return the time of the clock, but never a time before the previous one.

        The ticker rejects commands that are older than the commands that it has applied.
        """
        now = self._clock.now()
        self._accepted_at = now if self._accepted_at is None else max(now, self._accepted_at)
        return self._accepted_at

    async def _publish_rejections(self, messages: Sequence[tuple[str, CheckResult]]) -> None:
        for id_, result in messages:
            reply = rejection_reply(result, message_id=id_)
            if reply is not None:
                self._replies.send(result.accepted.actor or result.accepted.tenant, reply)
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
        trace=read_trace(message.headers),
    )


def _outcome(result: CheckResult | Rejected) -> Outcome:
    error = None if isinstance(result, Rejected) else result.not_json_error
    return DONE if error is None else DeadLettered(error.code, error.reason)


def count_usage(usage: UsageCounts, result: CheckResult) -> None:
    """Count the accepted changes of schedules, and the rejections by the tenant policy."""
    accepted = result.accepted
    if accepted.verb in CHANGE_VERBS:
        number = len(accepted.items) - len(result.rejections)
        usage.add(UsageKey(accepted.tenant, PUTS), number)
    for rejection in result.rejections:
        error = rejection.response.error
        if error.rule is not None:
            usage.add(UsageKey(accepted.tenant, error.rule, error.code))


def _count(results: Sequence[CheckResult]) -> None:
    """Count the items of all messages at once, because each lookup of a label takes time."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        accepted, rejected = result.accepted, len(result.rejections)
        # A label must not take its values from users, because Prometheus stores each value.
        verb = accepted.verb if accepted.verb in COMMANDS else "unknown"
        counts[verb, "accepted"] += len(accepted.items) - rejected
        counts[verb, "rejected"] += rejected
    for labels, count in counts.items():
        runtime_metrics.COMMANDS.labels(*labels).inc(count)


def _record_rejections(result: CheckResult) -> None:
    """Count the refusals by the tenant policy, and log the first rejection of a message."""
    for rejection in result.rejections:
        error = rejection.response.error
        if error.rule is not None:
            runtime_metrics.POLICY_REFUSALS.labels(error.code, error.rule).inc()
    if result.rejections:
        first = result.rejections[0].response.error
        log.info(
            "commands rejected",
            tenant=result.accepted.tenant,
            verb=result.accepted.verb,
            rejected=len(result.rejections),
            error=first.code,
            field=first.field,
        )
