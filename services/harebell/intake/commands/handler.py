"""TODO: describe this module."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from harebell.contract.commands import COMMANDS
from harebell.intake.commands.check import (
    CheckResult,
    check,
)
from harebell.intake.commands.publish import (
    accepted_commands_message,
    message_id_of,
    rejection_events,
    rejection_reply,
)
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.service import _submission, log
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.replies import send_reply
from harebell.runtime import failpoint
from harebell.runtime import metrics as runtime_metrics
from harebell.runtime.clock import Clock


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


def _outcome(checked: CheckResult) -> Outcome:
    fault = checked.unreadable
    return DONE if fault is None else DeadLettered(fault.code, fault.reason)


def _record(checked: CheckResult) -> None:
    change, refused = checked.change, len(checked.rejections)
    verb = change.verb if change.verb in COMMANDS else "unknown"  # a label must be one of few
    runtime_metrics.COMMANDS.labels(verb, "accepted").inc(len(change.items) - refused)
    runtime_metrics.COMMANDS.labels(verb, "rejected").inc(refused)
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
