"""Mutations: rules broken on purpose, one at a time, to show that the simulation can fail."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from tests.fakes.ledger import claims, pool, recovery, replays, schedules
from tests.fakes.ledger.pool import Record
from tests.fakes.ledger.runs import Run, numbered, run_of
from tests.fakes.ledger.schedules import STATES
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import LockedDeadLetter
from harebell.dlq_inspector.store.dead_letters import STATEMENTS as DEAD_LETTER_STATEMENTS
from harebell.domain.retry import Decision, decide
from harebell.domain.run_states import Reason, RunState
from harebell.executor.model import completion
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.intake.commands import check
from harebell.ledger.publishing_transaction import PublishingTransaction
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.runs.claims import STATEMENTS as CLAIM_STATEMENTS
from harebell.storage.runs.claims import ClaimKey
from harebell.storage.runs.recovery import STATEMENTS as RECOVERY_STATEMENTS
from harebell.storage.runs.replays import STATEMENTS as REPLAY_STATEMENTS
from harebell.storage.runs.staging import STATEMENTS as STAGING_STATEMENTS
from harebell.ticker.commands import changes, replacements
from harebell.ticker.commands.handlers import CommandContext
from harebell.ticker.model.request import schedule_response
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store.schedules import STATEMENTS as SCHEDULE_STATEMENTS

Mutation = AbstractContextManager[object]

PUBLISH_DELAY: Final = 0.5  # seconds after the commit


def _claim_any_seq(
    tx: Transaction,
    times: Sequence[datetime],
    schedules: Sequence[Any],
    seqs: Sequence[int],
    *rest: Any,
) -> Iterable[Record]:
    found = [(run_of(tx, key), seq) for _, key, seq in numbered(times, schedules, seqs)]
    present_seqs = [seq if run is None else run.seq for run, seq in found]
    return list(claims.claim(tx, times, schedules, present_seqs, *rest) or ())


def claim_ignores_seq() -> Mutation:
    matches = patch.object(ClaimKey, "matches", lambda _, claim: claim is not None)
    return _all(matches, patch.dict(pool.ANSWERS, {CLAIM_STATEMENTS.claim: _claim_any_seq}))


def complete_without_fencing() -> Mutation:
    def running_run(tx: Transaction, key: RunKey, _: int) -> Run | None:
        run = run_of(tx, key)
        return run if run is not None and run.state is RunState.RUNNING else None

    return patch.object(claims, "fenced_run", running_run)


def commit_before_publish() -> Mutation:
    publish = PublishingTransaction.publish

    async def publish_later(
        self: PublishingTransaction,
        tickets: Iterable[TicketHeader],
        others: Sequence[OutgoingMessage] = (),
    ) -> None:
        headers = list(tickets)

        def start_publish() -> None:
            task = publish(self, headers, others)
            asyncio.ensure_future(task)  # noqa: RUF006  # the mutation needs no reference

        asyncio.get_running_loop().call_later(PUBLISH_DELAY, start_publish)

    return patch.object(PublishingTransaction, "publish", publish_later)


def expire_leases_early() -> Mutation:
    return patch.object(recovery, "has_expired_lease", lambda *_: True)


def start_without_lease() -> Mutation:
    is_fresh = patch.object(ClaimedRun, "is_fresh", lambda *_: True)
    return _all(is_fresh, patch.object(ClaimedRun, "lease_ends", float("inf")))


def one_attempt_too_many() -> Mutation:
    def decide_next(policy: Any, attempt: int, *args: Any, **more: Any) -> Decision:
        return decide(policy, attempt - 1, *args, **more)

    return patch.object(completion, "decide", decide_next)


def ignore_lost_tickets() -> Mutation:
    return patch.dict(pool.ANSWERS, {RECOVERY_STATEMENTS.find_lost_tickets: lambda *_: []})


def cancel_keeps_runs() -> Mutation:
    return patch.dict(pool.ANSWERS, {STAGING_STATEMENTS.cancel: lambda *_: None})


def change_keeps_later_runs() -> Mutation:
    unstage = UnitOfWork.unstage

    def unstage_others(
        unit: UnitOfWork, record: ScheduleRecord, reason: Reason, **more: Any
    ) -> ScheduleRecord:
        is_for_later = reason is Reason.SUPERSEDED and "since" in more
        return record if is_for_later else unstage(unit, record, reason, **more)

    return patch.object(UnitOfWork, "unstage", unstage_others)


def activate_versions_early() -> Mutation:
    def activate(
        unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, **versions: Any
    ) -> ScheduleResponse:
        replace = replacements.replace_version
        return replace(unit, context, record, **versions)

    return patch.object(changes, "_add_pending_version", activate)


def activate_versions_by_number() -> Mutation:
    """Put pending versions in force in the order of their acceptance."""
    find_pending = schedules.find_pending

    def in_order_of_numbers(tx: Transaction, ids: Sequence[Any]) -> list[Record]:
        return sorted(find_pending(tx, ids) or (), key=lambda each: each["version"])

    return patch.dict(pool.ANSWERS, {SCHEDULE_STATEMENTS.find_pending: in_order_of_numbers})


def supersede_silently() -> Mutation:
    """Omit the superseded versions from the responses."""

    def respond(*args: Any, **more: Any) -> ScheduleResponse:
        return schedule_response(*args, **more | {"superseded": ()})

    return _all(
        patch.object(changes, "schedule_response", respond),
        patch.object(replacements, "schedule_response", respond),
    )


def repeat_gets_new_request_id() -> Mutation:
    """Give each repetition of a command its own id, so that it becomes another command."""
    numbers = count()
    return patch.object(check, "request_id_of", lambda *_: f"unnamed.{next(numbers)}")


def lose_dead_letters() -> Mutation:
    return patch.dict(pool.ANSWERS, {DEAD_LETTER_STATEMENTS.insert_dead_letters: lambda *_: []})


def replay_dead_letters_again() -> Mutation:
    def stage_any_replay_number(
        tx: Transaction, tenant: str, ids: Any, *columns: Any
    ) -> list[Record]:
        times, schedules, _, *rest = columns
        runs = [run_of(tx, key) for _, key in numbered(times, schedules)]
        present = [None if run is None else run.replay_number for run in runs]
        staged = replays.stage_replays(tx, tenant, ids, times, schedules, present, *rest)
        return list(staged or ())

    is_run = property(lambda dead_letter: dead_letter.kind is DeadLetterKind.RUN)
    staging = {REPLAY_STATEMENTS.stage: stage_any_replay_number}
    return _all(
        patch.object(LockedDeadLetter, "is_replayable", is_run),
        patch.dict(pool.ANSWERS, staging),
    )


def replay_keeps_dead_letters_open() -> Mutation:
    return patch.dict(pool.ANSWERS, {DEAD_LETTER_STATEMENTS.record_replays: lambda *_: None})


def count_replayed_runs_again() -> Mutation:
    """Add a replayed run to the open runs, and leave the counts unchanged."""

    def reopen_runs(tx: Transaction, schedules: Sequence[Any], times: Sequence[datetime]) -> None:
        counted = {schedule: tx.get(STATES, schedule) for schedule in schedules}
        replays.reopen_runs(tx, schedules, times)
        for schedule, before in counted.items():
            counts = {name: before[name] for name in ("executions", "failures")}
            tx.put(STATES, schedule, tx.get(STATES, schedule) | counts)

    return patch.dict(pool.ANSWERS, {REPLAY_STATEMENTS.reopen: reopen_runs})


def forget_ended_runs() -> Mutation:
    """Remove the ended runs from the open runs without a count."""
    return patch.object(ScheduleRecord, "with_results", lambda record, _: record)


@contextmanager
def _all(*patches: Mutation) -> Generator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


MUTATIONS: Final[dict[str, Callable[[], Mutation]]] = {
    each.__name__: each
    for each in (
        claim_ignores_seq,
        complete_without_fencing,
        commit_before_publish,
        expire_leases_early,
        start_without_lease,
        one_attempt_too_many,
        ignore_lost_tickets,
        cancel_keeps_runs,
        change_keeps_later_runs,
        activate_versions_early,
        activate_versions_by_number,
        supersede_silently,
        repeat_gets_new_request_id,
        lose_dead_letters,
        replay_dead_letters_again,
        replay_keeps_dead_letters_open,
        count_replayed_runs_again,
        forget_ended_runs,
    )
}
