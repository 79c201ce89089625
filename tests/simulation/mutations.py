"""Rules broken on purpose, one at a time: a simulation that cannot fail shows nothing."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from tests.fakes.ledger import claims, dead_letters, pool, recovery
from tests.fakes.ledger.pool import Record
from tests.fakes.ledger.runs import Run, numbered, run_of
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
from harebell.intake.commands import check as door
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.publishing_transaction import PublishingTransaction
from harebell.storage.runs.claims import STATEMENTS as CLAIM_STATEMENTS
from harebell.storage.runs.claims import ClaimKey
from harebell.storage.runs.recovery import STATEMENTS as RECOVERY_STATEMENTS
from harebell.storage.runs.staging import STATEMENTS as STAGING_STATEMENTS
from harebell.ticker.commands import put_patch
from harebell.ticker.commands.handlers import CommandContext
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version

Break = Callable[[], AbstractContextManager[object]]

TOO_LATE: Final = 0.5  # seconds after the commit


def _claim_whatever_seq(
    tx: Transaction,
    moments: Sequence[datetime],
    schedules: Sequence[Any],
    seqs: Sequence[int],
    *rest: Any,
) -> Iterable[Record]:
    found = [(run_of(tx, key), seq) for _, key, seq in numbered(moments, schedules, seqs)]
    as_they_are = [seq if run is None else run.seq for run, seq in found]
    return list(claims.claim(tx, moments, schedules, as_they_are, *rest) or ())


def claim_ignores_seq() -> AbstractContextManager[object]:
    taken = patch.object(ClaimKey, "matches", lambda _, claim: claim is not None)
    return _both(taken, patch.dict(pool.ANSWERS, {CLAIM_STATEMENTS.claim: _claim_whatever_seq}))


def settle_without_fencing() -> AbstractContextManager[object]:
    def held(tx: Transaction, key: RunKey, _: int) -> Run | None:
        run = run_of(tx, key)
        return run if run is not None and run.state is RunState.RUNNING else None

    return patch.object(claims, "fenced_run", held)


def commit_before_publish() -> AbstractContextManager[object]:
    publish = PublishingTransaction.publish

    async def later(
        self: PublishingTransaction,
        tickets: Iterable[TicketHeader],
        others: Sequence[OutgoingMessage] = (),
    ) -> None:
        sent = list(tickets)

        def send() -> None:
            asyncio.ensure_future(publish(self, sent, others))  # noqa: RUF006  # broken anyhow

        asyncio.get_running_loop().call_later(TOO_LATE, send)

    return patch.object(PublishingTransaction, "publish", later)


def sweep_lapses_early() -> AbstractContextManager[object]:
    return patch.object(recovery, "has_expired_lease", lambda *_: True)


def start_on_any_lease() -> AbstractContextManager[object]:
    fresh = patch.object(ClaimedRun, "is_fresh", lambda *_: True)
    return _both(fresh, patch.object(ClaimedRun, "lease_ends", float("inf")))


def one_attempt_too_many() -> AbstractContextManager[object]:
    def again(policy: Any, attempt: int, *args: Any, **more: Any) -> Decision:
        return decide(policy, attempt - 1, *args, **more)

    return patch.object(completion, "decide", again)


def what_is_lost_stays_lost() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {RECOVERY_STATEMENTS.find_lost_tickets: lambda *_: []})


def cancel_leaves_runs() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {STAGING_STATEMENTS.cancel: lambda *_: None})


def what_is_staged_beyond_a_change_stays() -> AbstractContextManager[object]:
    withdraw = UnitOfWork.unstage

    def all_but_superseded(
        book: UnitOfWork, entry: ScheduleRecord, reason: Reason, **more: Any
    ) -> ScheduleRecord:
        is_for_later = reason is Reason.SUPERSEDED and "since" in more
        return entry if is_for_later else withdraw(book, entry, reason, **more)

    return patch.object(UnitOfWork, "unstage", all_but_superseded)


def a_change_comes_at_once() -> AbstractContextManager[object]:
    def at_once(
        unit: UnitOfWork, context: CommandContext, record: ScheduleRecord, *, version: Version
    ) -> ScheduleResponse:
        return put_patch._replace_version(unit, context, record, version=version)

    return patch.object(put_patch, "_set_pending_version", at_once)


def a_command_has_no_name() -> AbstractContextManager[object]:
    """So that one that comes again is another."""
    numbers = count()
    return patch.object(door, "request_id_of", lambda *_: f"unnamed.{next(numbers)}")


def what_dies_is_not_kept() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {DEAD_LETTER_STATEMENTS.insert_dead_letters: lambda *_: []})


def a_letter_is_replayed_again() -> AbstractContextManager[object]:
    def whatever_the_series(tx: Transaction, tenant: str, ids: Any, *columns: Any) -> list[Record]:
        moments, schedules, _, *rest = columns
        runs = [run_of(tx, key) for _, key in numbered(moments, schedules)]
        as_they_are = [None if run is None else run.replay_number for run in runs]
        begun = dead_letters.stage_replays(tx, tenant, ids, moments, schedules, as_they_are, *rest)
        return list(begun or ())

    open_or_not = patch.object(
        LockedDeadLetter, "is_replayable", property(lambda held: held.kind is DeadLetterKind.RUN)
    )
    staged = {DEAD_LETTER_STATEMENTS.stage_replays: whatever_the_series}
    return _both(open_or_not, patch.dict(pool.ANSWERS, staged))


def a_replayed_letter_stays() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {DEAD_LETTER_STATEMENTS.record_replays: lambda *_: None})


@contextmanager
def _both(*patches: AbstractContextManager[object]) -> Generator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


BROKEN: Final[dict[str, Break]] = {
    each.__name__: each
    for each in (
        claim_ignores_seq,
        settle_without_fencing,
        commit_before_publish,
        sweep_lapses_early,
        start_on_any_lease,
        one_attempt_too_many,
        what_is_lost_stays_lost,
        cancel_leaves_runs,
        what_is_staged_beyond_a_change_stays,
        a_change_comes_at_once,
        a_command_has_no_name,
        what_dies_is_not_kept,
        a_letter_is_replayed_again,
        a_replayed_letter_stays,
    )
}
