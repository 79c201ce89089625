"""What must hold at every step: of every commit, of every start, of every answer heard."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import VERSIONS
from tests.fakes.ledger.store import Store, Transaction
from tests.simulation.bus import Message

from harebell.contract.amqp_names import DELAY, DUE
from harebell.contract.ids import RunKey, dead_run_id
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.domain.run_states import TRANSITIONS, Reason, RunState
from harebell.messaging.ticket_batches import parse_ticket_headers
from harebell.ticker.model.version import VersionStatus

LEASE: Final = timedelta(seconds=16)  # the longest, and what asking takes: a cancel reaches all
TICK: Final = timedelta(milliseconds=1)  # messages tell instants no finer

Token = tuple[RunKey, int]


class Cancelled(NamedTuple):
    asked_at: datetime
    answered_at: datetime


class Violation(AssertionError):
    """What must never be."""


@dataclass
class Claimed:
    owner: object
    due_at: datetime
    lease_until: datetime
    started: bool = False
    succeeded: bool = False


@dataclass
class Witness:
    """Told of everything; raises at once. `now` is the database's clock."""

    store: Store
    tickets: set[Token] = field(default_factory=set)  # that a queue has taken
    claims: dict[Token, Claimed] = field(default_factory=dict)
    cancelled: dict[UUID, Cancelled] = field(default_factory=dict)
    replayed: dict[RunKey, datetime] = field(default_factory=dict)
    became: Counter[str] = field(default_factory=Counter)

    def published(self, message: Message) -> None:
        if message.exchange in (DELAY, DUE):
            self.tickets |= {ticket.identity for ticket in parse_ticket_headers(message.body)}

    def committing(self, transaction: Transaction) -> None:
        for (table, key), after in transaction.written.items():
            before = self.store.tables[table].get(key)
            if table == RUNS and after is not None and before != after:
                self._moved(transaction, before, after)

    def _moved(self, transaction: Transaction, before: Run | None, after: Run) -> None:
        self._check_seq(before, after)
        self._check_series(transaction, before, after)
        if after.state is RunState.RUNNING:
            self._check_claim(transaction, before, after)
        elif after.is_waiting and after.staged_at is not None:
            self._check_ticket(before, after)
        if after.state is RunState.SUCCEEDED:
            self._check_success(before, after)
        if before is None and after.origin is None and after.state is RunState.STAGED:
            self._check_version(transaction, before, after)
        if before is None or before.state is not after.state:
            self.became[after.state] += 1

    def _check_seq(self, before: Run | None, after: Run) -> None:
        if before is None:
            must(after.seq == 1, f"{after.key} begins with seq {after.seq}")
            return
        moved = after.seq - before.seq
        must(moved >= 0, f"{after.key}: seq went back to {after.seq}")
        if before.state is not after.state:
            must(moved >= 1, f"{after.key}: {before.state} became {after.state} without a seq")
            legal = moved > 1 or (before.state, after.state) in TRANSITIONS
            must(legal, f"{after.key}: {before.state} became {after.state}")

    def _check_series(self, transaction: Transaction, before: Run | None, after: Run) -> None:
        """A new one is a person's: of a held run, or of a dead one whose letter leaves the desk."""
        if before is None or before.replay_number == after.replay_number:
            return
        must(
            after.replay_number == before.replay_number + 1,
            f"{after.key}: replay_number {after.replay_number} from {before}",
        )
        if before.state is RunState.DEAD:
            letter = dead_run_id(str(after.key), before.replay_number)
            was, is_now = (
                self.store.tables[DEAD_LETTERS].get(letter),
                transaction.get(DEAD_LETTERS, letter),
            )
            left = was and (was["state"], is_now["state"]) == (
                DeadLetterState.OPEN,
                DeadLetterState.REPLAYED,
            )
            must(
                left,
                f"{after.key}: replay_number {after.replay_number} began, and its letter stayed",
            )
            self.replayed[after.key] = self.store.now()

    def _check_ticket(self, before: Run | None, after: Run) -> None:
        """Never authority without a message."""
        is_new = before is None or before.seq != after.seq
        if is_new and after.reason != Reason.WAITING_FOR_OVERLAP:
            told = (after.key, after.seq) in self.tickets
            must(told, f"{after.key}: seq {after.seq} was authorised, and no ticket published")

    def _check_claim(self, transaction: Transaction, before: Run | None, after: Run) -> None:
        token = (after.key, after.seq)
        until = after.lease_until or transaction.now
        if before is not None and before.seq == after.seq:
            self.claims[token].lease_until = until
            return
        must(before is not None and before.is_waiting, f"{after.key} was claimed as {before}")
        assert before is not None
        must(token not in self.claims, f"{after.key}: seq {after.seq} was claimed twice")
        due_at = before.due_at if before.reason == Reason.WAITING_FOR_OVERLAP else at_of(before)
        self.claims[token] = Claimed(transaction.owner, due_at, until)
        cancelled = self._cancelled_at(after.key)
        must(cancelled is None, f"{after.key} was claimed after its cancel was answered")
        if after.origin is None:
            self._check_version(transaction, before, after)
        work = self._work(transaction, after)
        most = work["retry"]["max_attempts"] if "retry" in work else 5
        must(after.attempt <= most, f"{after.key}: attempt {after.attempt} of {most}")
        if work.get("overlap", "allow") != "allow":
            others = [run for run in self._running(transaction, after) if run.key != after.key]
            must(not others, f"{after.key} was claimed while {others[:1]} ran")

    def _cancelled_at(self, key: RunKey) -> datetime | None:
        """None also for a run that was replayed since: a person asked for it."""
        cancelled, replayed = self.cancelled.get(key.schedule_id), self.replayed.get(key)
        is_since = cancelled and replayed and replayed > cancelled.asked_at
        return None if cancelled is None or is_since else cancelled.answered_at

    def _check_version(self, transaction: Transaction, before: Run | None, run: Run) -> None:
        """Each instant is that version's which is in force at it.

        What was overdue then, and a pause took back, the new version owes again.
        """
        at = run.scheduled_for if before is None else max(run.scheduled_for, transaction.now)
        for version in transaction.rows(VERSIONS):
            if version["schedule_id"] != run.schedule_id or not _is_deferred(version):
                continue
            number, since = version["version"], version["effective_at"]
            is_overtaken = number > run.version and since <= run.scheduled_for
            is_early = number == run.version and since > at
            is_in_force = not is_overtaken and not is_early
            must(
                is_in_force, f"{run.key}: of version {run.version}, but {number} is from {since} on"
            )

    def _check_success(self, before: Run | None, after: Run) -> None:
        if before is not None and before.state is RunState.UNRESOLVED:
            return  # a person says so
        must(before is not None, f"{after.key} was born a success")
        claim = None if before is None else self.claims.get((after.key, before.seq))
        is_true = claim is not None and claim.succeeded
        must(is_true, f"{after.key}: a success was recorded that was none")

    def _running(self, transaction: Transaction, like: Run) -> list[Run]:
        return [
            run
            for run in transaction.rows(RUNS)
            if run.schedule_id == like.schedule_id and run.state is RunState.RUNNING
        ]

    def _work(self, transaction: Transaction, run: Run) -> dict[str, dict[str, int]]:
        version = transaction.get(VERSIONS, (run.schedule_id, run.version))
        work: dict[str, dict[str, int]] = orjson.loads(version["run_spec"])
        return work

    # what targets see

    def started(self, process: object, key: RunKey, token: int) -> Claimed:
        now = self.store.now()
        claim = self.claims.get((key, token))
        must(claim is not None, f"{key} started unclaimed, with token {token}")
        assert claim is not None
        must(claim.owner is process, f"{key} started by who had not claimed it")
        row = self.store.tables[RUNS][key]
        is_mine = (row.state, row.seq) == (RunState.RUNNING, token)
        must(is_mine, f"{key} started when it was {row.state}, with seq {row.seq}, not {token}")
        must(not claim.started, f"{key} started twice with token {token}")
        must(now > claim.due_at - TICK, f"{key} started {claim.due_at - now} early")
        must(now <= claim.lease_until, f"{key} started {now - claim.lease_until} after its lease")
        cancelled = self._cancelled_at(key)
        in_time = cancelled is None or now <= cancelled + LEASE
        must(in_time, f"{key} started long after its cancel was answered")
        claim.started = True
        return claim


def _is_deferred(version: dict[str, Any]) -> bool:
    """And not come to nothing."""
    is_later = version["effective_at"] > version["accepted_at"]
    return is_later and version["status"] in (VersionStatus.PENDING, VersionStatus.ACTIVE)


def at_of(run: Run) -> datetime:
    return run.next_attempt_at or run.due_at


def must(holds: object, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)
