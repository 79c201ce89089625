"""The shell of the door: commands become changes, queries become answers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from harebell.contract.answers import refusal
from harebell.contract.codec import encode
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import Rejected
from harebell.contract.message import Message
from harebell.contract.names import check_version
from harebell.intake.answers import find
from harebell.intake.commands import Rules
from harebell.intake.core import (
    NOT_JSON,
    Checked,
    Submission,
    check,
    check_tenant,
    routed,
)
from harebell.intake.definition import Callees
from harebell.intake.outbox import change_message, name_of, refusals_message, rejected_facts
from harebell.intake.queries import read
from harebell.intake.store import Store
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.consume import DONE, DeadLetter, Delivery, Outcome
from harebell.kernel.amqp.events import tell
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.replies import answer, answerable, reply
from harebell.kernel.amqp.session import Concurrent, Consumer, Ordered
from harebell.kernel.bus import INTAKE, QUERY
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import open_engine
from harebell.kernel.lifecycle import open_parts, run_until
from harebell.kernel.settings import IntakeSettings

BATCH: Final = 100  # messages checked, then published together
PREFETCH: Final = 2 * BATCH  # the next batch is at hand when one is done
QUERIES_AT_ONCE: Final = 20

log = structlog.get_logger()


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    engine = open_engine(
        settings.database_url.get_secret_value(), name=settings.name, bounds=settings.pool_bounds
    )
    async with open_parts(settings, "intake", stop) as parts:
        may_call = Callees(settings.allowed_networks, settings.known_tasks)
        rules = Rules(may_call, settings.default_when)
        door = Commands(parts.publisher, parts.clock, rules)
        desk = Queries(parts.publisher, parts.clock, Store(engine), may_call)
        commands = Consumer(
            INTAKE.name,
            parts.connect,
            lambda: Ordered(door.handle, parts.settler, limit=BATCH, linger=0),
            prefetch=PREFETCH,
            looks=False,
        )
        queries = Consumer(
            QUERY.name,
            parts.connect,
            lambda: Concurrent(desk.handle, parts.settler),
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


class Commands:
    """Handles `harebell.intake`: whatever comes is passed on or refused, in its order."""

    def __init__(self, publisher: Publisher, clock: Clock, rules: Rules) -> None:
        self._publisher = publisher
        self._clock = clock
        self._rules = rules
        self._accepted_at: datetime | None = None

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Confirmed before it is acknowledged: a crash in between passes a message on twice."""
        accepted_at = self._accept()
        messages: list[tuple[str, Checked]] = []
        for delivery in deliveries:
            submission = _submission(delivery)
            checked = check(submission, accepted_at=accepted_at, rules=self._rules)
            messages.append((name_of(submission), checked))
            await asyncio.sleep(0)  # five hundred items take a while: others have their turn
        await failpoint.reach("intake.before_publish")
        await self._publisher.publish_all(
            change_message(checked.change, name=name)
            for name, checked in messages
            if not checked.is_refused
        )
        await failpoint.reach("intake.after_publish")
        await self._tell_of_refusals(messages)
        for _, checked in messages:
            _record(checked)
        return [_outcome(checked) for _, checked in messages]

    async def _tell_of_refusals(self, messages: Sequence[tuple[str, Checked]]) -> None:
        answers = (refusals_message(checked, name=name) for name, checked in messages)
        told = [answer(self._publisher, message) for message in answers if message is not None]
        await asyncio.gather(*told)
        await tell(
            self._publisher,
            (fact for name, checked in messages for fact in rejected_facts(checked, name=name)),
        )

    def _accept(self) -> datetime:
        """Never earlier than before, though the clock is set again: later changes are newer."""
        now = self._clock.now()
        self._accepted_at = now if self._accepted_at is None else max(now, self._accepted_at)
        return self._accepted_at


class Queries:
    """Handles `harebell.queries`, from the database."""

    def __init__(self, publisher: Publisher, clock: Clock, store: Store, may_call: Callees) -> None:
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
            told = refusal(error)
            if error.code == NOT_JSON:
                outcome = DeadLetter(error.code, error.reason)
        if submission.reply_to is not None:
            name = name_of(submission)
            body = encode(told)
            message = reply(submission.reply_to, submission.correlation_id, body, name=name)
            await answer(self._publisher, message)
        return outcome

    async def _answer(self, submission: Submission) -> Message:
        """Raises `Rejected`."""
        tenant, verb = routed(submission.routing_key)
        check_tenant(tenant)
        check_version(submission.type)
        now = self._clock.now()
        question = read(tenant, verb, submission.body, now=now)
        return await find(self._store, tenant, question, now=now, may_call=self._may_call)


def _submission(delivery: Delivery) -> Submission:
    message = delivery.message
    return Submission(
        routing_key=delivery.routing_key,
        body=delivery.body,
        message_id=delivery.message_id,
        reply_to=message.reply_to if answerable(message.reply_to) else None,
        correlation_id=message.correlation_id,
        user_id=message.user_id,
        type=message.type,
    )


def _outcome(checked: Checked) -> Outcome:
    fault = checked.unreadable
    return DONE if fault is None else DeadLetter(fault.code, fault.reason)


def _record(checked: Checked) -> None:
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
