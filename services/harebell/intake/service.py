"""The shell of the door: commands become changes, queries become answers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from harebell.contract.answers import error_response
from harebell.contract.codec import encode
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import Rejected
from harebell.contract.message import Message
from harebell.contract.names import check_version
from harebell.intake.answers import answer_query
from harebell.intake.commands import IntakePolicy
from harebell.intake.core import (
    NOT_JSON,
    CheckResult,
    IncomingRequest,
    check,
    check_tenant,
    parse_routing_key,
)
from harebell.intake.definition import TargetPolicy
from harebell.intake.outbox import (
    accepted_commands_message,
    message_id_of,
    rejection_events,
    rejection_reply,
)
from harebell.intake.queries import parse_query
from harebell.intake.store import IntakeStore
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.consume import DONE, DeadLettered, Delivery, Outcome
from harebell.kernel.amqp.events import publish_events
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.replies import can_reply_to, reply, send_reply
from harebell.kernel.amqp.session import ConcurrentWorker, Consumer, OrderedWorker
from harebell.kernel.bus import INTAKE, QUERY
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import open_engine
from harebell.kernel.lifecycle import open_service, run_until
from harebell.kernel.settings import IntakeSettings

BATCH: Final = 100  # messages checked, then published together
PREFETCH: Final = 2 * BATCH  # the next batch is at hand when one is done
QUERIES_AT_ONCE: Final = 20

log = structlog.get_logger()


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    engine = open_engine(
        settings.database_url.get_secret_value(),
        name=settings.instance_id,
        bounds=settings.pool_bounds,
    )
    async with open_service(settings, "intake", stop) as parts:
        may_call = TargetPolicy(settings.allowed_networks, settings.known_tasks)
        rules = IntakePolicy(may_call, settings.default_when)
        door = CommandHandler(parts.publisher, parts.clock, rules)
        desk = QueryHandler(parts.publisher, parts.clock, IntakeStore(engine), may_call)
        commands = Consumer(
            INTAKE.name,
            parts.connect,
            lambda: OrderedWorker(door.handle, parts.settler, limit=BATCH, linger=0),
            prefetch=PREFETCH,
            looks=False,
        )
        queries = Consumer(
            QUERY.name,
            parts.connect,
            lambda: ConcurrentWorker(desk.handle, parts.settler),
            prefetch=QUERIES_AT_ONCE,
        )
        parts.health.check("commands", lambda: commands.is_consuming)
        parts.health.check("queries", lambda: queries.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[commands.run(stop), queries.run(stop)],
                background=[parts.keep()],
            )
        finally:
            await engine.dispose()


class CommandHandler:
    """Handles `harebell.intake`: whatever comes is passed on or refused, in its order."""

    def __init__(self, publisher: Publisher, clock: Clock, rules: IntakePolicy) -> None:
        self._publisher = publisher
        self._clock = clock
        self._rules = rules
        self._accepted_at: datetime | None = None

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Confirmed before it is acknowledged: a crash in between passes a message on twice."""
        accepted_at = self._accept()
        messages: list[tuple[str, CheckResult]] = []
        for delivery in deliveries:
            submission = _submission(delivery)
            checked = check(submission, accepted_at=accepted_at, rules=self._rules)
            messages.append((message_id_of(submission), checked))
            await asyncio.sleep(0)  # five hundred items take a while: others have their turn
        await failpoint.reach("intake.before_publish")
        await self._publisher.publish_all(
            accepted_commands_message(checked.change, name=name)
            for name, checked in messages
            if not checked.is_refused
        )
        await failpoint.reach("intake.after_publish")
        await self._tell_of_refusals(messages)
        for _, checked in messages:
            _record(checked)
        return [_outcome(checked) for _, checked in messages]

    async def _tell_of_refusals(self, messages: Sequence[tuple[str, CheckResult]]) -> None:
        answers = (rejection_reply(checked, name=name) for name, checked in messages)
        told = [send_reply(self._publisher, message) for message in answers if message is not None]
        await asyncio.gather(*told)
        await publish_events(
            self._publisher,
            (fact for name, checked in messages for fact in rejection_events(checked, name=name)),
        )

    def _accept(self) -> datetime:
        """Never earlier than before, though the clock is set again: later changes are newer."""
        now = self._clock.now()
        self._accepted_at = now if self._accepted_at is None else max(now, self._accepted_at)
        return self._accepted_at


class QueryHandler:
    """Handles `harebell.queries`, from the database."""

    def __init__(
        self, publisher: Publisher, clock: Clock, store: IntakeStore, may_call: TargetPolicy
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._store = store
        self._may_call = may_call

    async def handle(self, delivery: Delivery) -> Outcome:
        submission = _submission(delivery)
        outcome: Outcome = DONE
        try:
            told = await self._answer(submission)
        except Rejected as error:
            told = error_response(error)
            if error.code == NOT_JSON:
                outcome = DeadLettered(error.code, error.reason)
        if submission.reply_to is not None:
            name = message_id_of(submission)
            body = encode(told)
            message = reply(submission.reply_to, submission.correlation_id, body, name=name)
            await send_reply(self._publisher, message)
        return outcome

    async def _answer(self, submission: IncomingRequest) -> Message:
        """Raises `Rejected`."""
        tenant, verb = parse_routing_key(submission.routing_key)
        check_tenant(tenant)
        check_version(submission.type)
        now = self._clock.now()
        question = parse_query(tenant, verb, submission.body, now=now)
        return await answer_query(self._store, tenant, question, now=now, may_call=self._may_call)


def _submission(delivery: Delivery) -> IncomingRequest:
    message = delivery.message
    return IncomingRequest(
        routing_key=delivery.routing_key,
        body=delivery.body,
        message_id=delivery.message_id,
        reply_to=message.reply_to if can_reply_to(message.reply_to) else None,
        correlation_id=message.correlation_id,
        user_id=message.user_id,
        type=message.type,
    )


def _outcome(checked: CheckResult) -> Outcome:
    fault = checked.unreadable
    return DONE if fault is None else DeadLettered(fault.code, fault.reason)


def _record(checked: CheckResult) -> None:
    change, refused = checked.change, len(checked.rejections)
    verb = change.verb if change.verb in COMMANDS else "unknown"  # a label must be one of few
    metrics.COMMANDS.labels(verb, "accepted").inc(len(change.items) - refused)
    metrics.COMMANDS.labels(verb, "refused").inc(refused)
    if refused:
        first = checked.rejections[0].refusal.error
        log.info(
            "commands refused",
            tenant=change.tenant,
            verb=change.verb,
            refused=refused,
            error=first.code,
            field=first.field,
        )
