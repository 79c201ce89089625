"""The handler of delayed messages: a batch of them becomes puts of one-shot schedules."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pamqp.common import FieldValue

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands, DelayedDelivery
from harebell.contract.commands import MAX_ITEM, SchedulePut
from harebell.contract.errors import InvalidInput, NotAllowed, Rejected
from harebell.contract.ids import schedule_id
from harebell.contract.json_codec import encode_plain
from harebell.contract.message import parse, quoted
from harebell.contract.trace import read_trace
from harebell.contract.types import instant_text
from harebell.domain.usage_counts import PUTS, UsageCounts, UsageKey
from harebell.intake.commands.publish import accepted_batch_message, accepted_commands_message
from harebell.intake.commands.rules import IntakePolicy, check_command
from harebell.intake.delayed.message import (
    DelayedMessage,
    JsonObject,
    key_of_digest,
    waited_ms,
)
from harebell.intake.delayed.repeats import AcceptedDigests
from harebell.messaging.accepted_messages import TenantWindows, credit_headers
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.fair_worker import size_of
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.sender_check import digest
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock

PUT: Final = "schedule.put"
UNKNOWN_EXCHANGE: Final = "unknown_exchange"
MESSAGES_PER_TURN: Final = 8  # checked before the connection is read, which times what arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMessage:
    """A delayed message as an accepted command, and its digest if no message id identifies it."""

    commands: AcceptedCommands
    request_id: str
    digest: str | None


@dataclass(slots=True, kw_only=True)
class DelayedHandler:
    """The handler that turns each delayed message into a `schedule.put`, in their order.

    A refused message becomes a dead letter of its tenant, and no message is lost.
    """

    publisher: Publisher
    clock: Clock
    policy: IntakePolicy
    usage: UsageCounts = field(default_factory=UsageCounts)
    windows: TenantWindows | None = None  # null: the ticker sends no credits
    credit_queue: str = ""
    broker_timestamps: bool = False  # RabbitMQ writes when it received each message
    _digests: AcceptedDigests = field(default_factory=AcceptedDigests)
    _accepted_at: datetime | None = None

    async def handle(
        self, deliveries: Sequence[Delivery], *, session: str = ""
    ) -> Sequence[Outcome]:
        """Check and publish a batch, and return the outcome of each delivery.

        A crash before the acknowledgement repeats the messages, which the broker then marks as
        redelivered, and the ticker recognises each accepted one.
        `session` names the session of the consumer. In each, the delivery tags begin again.
        """
        accepted: list[AcceptedMessage] = []
        outcomes: list[Outcome] = []
        in_batch: set[str] = set()
        for index, delivery in enumerate(deliveries):
            if index % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)
            tenant = self.policy.targets.policies.current.tenant_of_delayed(
                delivery.message.exchange
            )
            # A message waits for the batches before it, and this wait is part of its delay.
            received_at = self.clock.from_monotonic(delivery.message.received_at)
            at = self._accepted_at = max(received_at, self._accepted_at or received_at)
            try:
                message = self._accept(delivery, tenant, at, session=session, in_batch=in_batch)
            except Rejected as error:
                outcomes.append(self._refuse(delivery, error, tenant))
                continue
            accepted.append(message)
            outcomes.append(DONE)
        await failpoint.reach("intake.before_publish")
        if accepted:
            await self.publisher.publish(self._outgoing(accepted, deliveries))
        await failpoint.reach("intake.after_publish")
        self._digests.add(each.digest for each in accepted if each.digest is not None)
        for each in accepted:
            self.usage.add(UsageKey(each.commands.tenant, PUTS), 1)
        runtime_metrics.COMMANDS.labels(PUT, "accepted").inc(len(accepted))
        runtime_metrics.COMMANDS.labels(PUT, "rejected").inc(len(deliveries) - len(accepted))
        return outcomes

    def _accept(
        self,
        delivery: Delivery,
        tenant: str | None,
        accepted_at: datetime,
        *,
        session: str,
        in_batch: set[str],
    ) -> AcceptedMessage:
        """Return the accepted command of a message. Raise `Rejected` with the reason."""
        received = delivery.message
        if tenant is None:
            reason = (
                f"The exchange {quoted(received.exchange)} must belong to a tenant by the tenant "
                "policy or by HAREBELL_DELAYED_EXCHANGES."
            )
            raise NotAllowed(reason, code=UNKNOWN_EXCHANGE)
        message = DelayedMessage.of(received)
        key, content = message.key, None
        if key is None:
            content = message.digest
            is_another = content in in_batch or content in self._digests
            suffix = ""
            if is_another and not received.is_redelivered:
                suffix = f"#{session}-{received.tag}"
            key = key_of_digest(received.exchange, content, suffix)
            in_batch.add(content)
        waited = waited_ms(received.headers, accepted_at) if self.broker_timestamps else 0
        put = message.put(key, waited_ms=waited)
        identity = schedule_id(tenant, key)
        self._check(put, tenant, accepted_at)
        # A ticker that receives the batch twice recognises the command by this id.
        position = f"{instant_text(accepted_at)}/{session}/{received.tag}"
        request_id = f"delayed/{digest(key.encode(), position.encode())}"
        trace = read_trace(received.headers)
        is_repeated = received.is_redelivered
        commands = AcceptedCommands(
            tenant=tenant,
            verb=PUT,
            actor=received.user_id or None,
            accepted_at=accepted_at,
            traceparent=None if trace is None else trace.traceparent,
            tracestate=None if trace is None else trace.tracestate,
            single=True,
            delayed=DelayedDelivery.REPEATED if is_repeated else DelayedDelivery.FIRST,
            items=[AcceptedCommand(index=0, request_id=request_id, schedule_id=identity, body=put)],
        )
        return AcceptedMessage(commands=commands, request_id=request_id, digest=content)

    def _check(self, put: JsonObject, tenant: str, accepted_at: datetime) -> None:
        if (size := len(encode_plain([put]))) > MAX_ITEM:
            reason = f"The message must need at most {MAX_ITEM} bytes as JSON, not {size}."
            raise InvalidInput(reason, code="too_large")
        command = parse(SchedulePut, put)
        check_command(command, None, self.policy, tenant=tenant, accepted_at=accepted_at)
        self.policy.quotas_of(tenant, accepted_at).check(command)

    def _refuse(self, delivery: Delivery, error: Rejected, tenant: str | None) -> Outcome:
        """Return the dead letter, which names the exchange because its fields do not."""
        rule = getattr(error, "rule", None)
        if rule is not None and tenant is not None:
            runtime_metrics.POLICY_REFUSALS.labels(error.code, rule).inc()
            self.usage.add(UsageKey(tenant, rule, error.code))
        exchange = quoted(delivery.message.exchange)
        return DeadLettered(error.code, f"{error.reason} The exchange is {exchange}.", tenant)

    def _outgoing(
        self, accepted: Sequence[AcceptedMessage], deliveries: Sequence[Delivery]
    ) -> OutgoingMessage:
        headers = self._credit_headers(deliveries)
        if len(accepted) == 1:
            only = accepted[0]
            return accepted_commands_message(
                only.commands, message_id=only.request_id, headers=headers
            )
        return accepted_batch_message(
            [each.commands for each in accepted],
            message_ids=[each.request_id for each in accepted],
            headers=headers,
        )

    def _credit_headers(self, deliveries: Sequence[Delivery]) -> Mapping[str, FieldValue]:
        """Count the batch in the window of the queue, so that the ticker serves others between."""
        if self.windows is None:
            return {}
        queue = deliveries[0].queue
        number = self.windows.reserve(queue, sum(map(size_of, deliveries)))
        return {} if number is None else credit_headers(self.credit_queue, number, tenant=queue)
