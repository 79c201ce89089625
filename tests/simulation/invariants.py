"""The invariants of every commit, of every start and of every response."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import STATES, VERSIONS
from tests.fakes.ledger.store import Store, Transaction
from tests.simulation.bus import Message

from harebell.contract.amqp_names import DELAY, DUE
from harebell.contract.ids import RunKey, dead_run_id
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.domain.run_states import TRANSITIONS, Reason, RunResult, RunState
from harebell.messaging.ticket_batches import parse_ticket_headers
from harebell.ticker.model.version import VersionStatus

# The longest lease and a call, after which a cancellation has reached every executor.
CANCEL_LIMIT: Final = timedelta(seconds=16)
RESOLUTION: Final = timedelta(milliseconds=1)  # of times in messages
DEFAULT_ATTEMPTS: Final = 5

Token = tuple[RunKey, int]


class Cancellation(NamedTuple):
    """A cancellation with a response."""

    sent_at: datetime
    answered_at: datetime


class Violation(AssertionError):
    """A violated invariant."""


@dataclass(kw_only=True)
class ClaimRecord:
    """A claim with the events of its run."""

    owner: object
    due_at: datetime
    lease_until: datetime
    has_started: bool = False
    has_succeeded: bool = False


@dataclass(kw_only=True)
class InvariantChecker:
    """A checker that receives every event and raises `Violation` at once.

    The clock of the store is the clock of the database.
    """

    store: Store
    tickets: set[Token] = field(default_factory=set)  # published tickets
    claims: dict[Token, ClaimRecord] = field(default_factory=dict)
    cancelled: dict[UUID, Cancellation] = field(default_factory=dict)
    replayed: dict[RunKey, datetime] = field(default_factory=dict)
    entered_states: Counter[str] = field(default_factory=Counter)  # of all runs

    def check_publish(self, message: Message) -> None:
        if message.exchange in (DELAY, DUE):
            self.tickets |= {ticket.identity for ticket in parse_ticket_headers(message.body)}

    def check_commit(self, transaction: Transaction) -> None:
        for (table, key), after in transaction.written.items():
            before = self.store.tables[table].get(key)
            if table == RUNS and after is not None and before != after:
                self._check_change(transaction, before, after)
        rows = (row for (table, _), row in transaction.written.items() if table == RUNS)
        states = (row for (table, _), row in transaction.written.items() if table == STATES)
        changed = {run.schedule_id for run in rows} | {state["schedule_id"] for state in states}
        for schedule_id in changed:
            self._check_counts(transaction, schedule_id)

    def _check_change(self, transaction: Transaction, before: Run | None, after: Run) -> None:
        self._check_seq(before, after)
        self._check_replay_number(transaction, before, after)
        if after.state is RunState.RUNNING:
            self._check_claim(transaction, before, after)
        elif after.is_waiting and after.staged_at is not None:
            self._check_ticket(before, after)
        if after.state is RunState.SUCCEEDED:
            self._check_success(before, after)
        if before is None and after.origin is None and after.state is RunState.STAGED:
            self._check_version(transaction, before, after)
        if before is None or before.state is not after.state:
            self.entered_states[after.state] += 1

    def _check_counts(self, transaction: Transaction, schedule_id: UUID) -> None:
        """Check that the ticker has counted each run that is no longer open exactly once."""
        state = transaction.get(STATES, schedule_id)
        runs = [run for run in transaction.rows(RUNS) if run.schedule_id == schedule_id]
        if state is None:
            return check(not runs, f"{schedule_id} has runs and no state")
        results = {run.scheduled_for: RunResult(run.state, run.attempt) for run in runs}
        open_runs = [results[time] for time in state["open_runs"] if time in results]
        counted = [
            state["executions"] + sum(each.is_execution for each in open_runs),
            state["failures"] + sum(each.is_failure for each in open_runs),
        ]
        expected = [
            sum(each.is_execution for each in results.values()),
            sum(each.is_failure for each in results.values()),
        ]
        text = f"{schedule_id} has {counted} executions and failures, not {expected}"
        check(counted == expected, text)
        return None

    def _check_seq(self, before: Run | None, after: Run) -> None:
        if before is None:
            check(after.seq == 1, f"{after.key} begins with seq {after.seq}")
            return
        steps = after.seq - before.seq
        check(steps >= 0, f"{after.key}: seq decreased to {after.seq}")
        if before.state is not after.state:
            check(steps >= 1, f"{after.key}: {before.state} became {after.state} without a new seq")
            is_permitted = steps > 1 or (before.state, after.state) in TRANSITIONS
            check(is_permitted, f"{after.key}: {before.state} became {after.state}")

    def _check_replay_number(
        self, transaction: Transaction, before: Run | None, after: Run
    ) -> None:
        """Check that a person began the replay.

        The person resolved an unresolved run, or the dead letter of a dead run closes.
        """
        if before is None or before.replay_number == after.replay_number:
            return
        number = after.replay_number
        is_next = number == before.replay_number + 1
        check(is_next, f"{after.key}: replay number {number} after {before}")
        if before.state is RunState.DEAD:
            id_ = dead_run_id(after.tenant, str(after.key), before.replay_number)
            old, new = self.store.tables[DEAD_LETTERS].get(id_), transaction.get(DEAD_LETTERS, id_)
            closed = (DeadLetterState.OPEN, DeadLetterState.REPLAYED)
            is_closed = old and (old["state"], new["state"]) == closed
            text = f"{after.key}: replay number {number} began and its dead letter stayed open"
            check(is_closed, text)
            self.replayed[after.key] = self.store.now()

    def _check_ticket(self, before: Run | None, after: Run) -> None:
        """Check that an authorised run has a published ticket."""
        is_new = before is None or before.seq != after.seq
        if is_new and after.reason != Reason.WAITING_FOR_OVERLAP:
            is_published = (after.key, after.seq) in self.tickets
            text = f"{after.key}: seq {after.seq} was authorised with no ticket published"
            check(is_published, text)

    def _check_claim(self, transaction: Transaction, before: Run | None, after: Run) -> None:
        token = (after.key, after.token)
        until = after.lease_until or transaction.now
        if before is not None and before.seq == after.seq:
            self.claims[token].lease_until = until
            return
        check(before is not None and before.is_waiting, f"{after.key} was claimed as {before}")
        assert before is not None
        check(token not in self.claims, f"{after.key}: seq {after.seq} was claimed twice")
        is_waiting = before.reason == Reason.WAITING_FOR_OVERLAP
        due_at = before.due_at if is_waiting else due_time_of(before)
        self.claims[token] = ClaimRecord(owner=transaction.owner, due_at=due_at, lease_until=until)
        is_cancelled = self._cancelled_at(after.key) is not None
        check(not is_cancelled, f"{after.key} was claimed after the response to its cancellation")
        if after.origin is None:
            self._check_version(transaction, before, after)
        self._check_policies(transaction, after)

    def _check_policies(self, transaction: Transaction, run: Run) -> None:
        run_spec = self._run_spec(transaction, run)
        is_default = "retry" not in run_spec
        max_attempts = DEFAULT_ATTEMPTS if is_default else run_spec["retry"]["max_attempts"]
        text = f"{run.key}: attempt {run.attempt} of {max_attempts}"
        check(run.attempt <= max_attempts, text)
        if run_spec.get("overlap", "allow") != "allow":
            others = [each for each in self._running(transaction, run) if each.key != run.key]
            check(not others, f"{run.key} was claimed while {others[:1]} ran")

    def _cancelled_at(self, key: RunKey) -> datetime | None:
        """Return the time of the response, unless a person has replayed the run since."""
        cancelled, replayed = self.cancelled.get(key.schedule_id), self.replayed.get(key)
        is_since = cancelled and replayed and replayed > cancelled.sent_at
        return None if cancelled is None or is_since else cancelled.answered_at

    def _check_version(self, transaction: Transaction, before: Run | None, run: Run) -> None:
        """Check that the run belongs to the version in force at its scheduled time.

        A new version also stages the overdue runs that a pause unstaged.
        """
        at = run.scheduled_for if before is None else max(run.scheduled_for, transaction.now)
        own_since = transaction.get(VERSIONS, (run.schedule_id, run.version))["effective_at"]
        for version in transaction.rows(VERSIONS):
            if version["schedule_id"] != run.schedule_id or not _has_effective_time(version):
                continue
            number, since = version["version"], version["effective_at"]
            is_later = (since, number) > (own_since, run.version)
            is_replaced = is_later and since <= run.scheduled_for
            is_early = number == run.version and since > at
            is_in_force = not is_replaced and not is_early
            text = f"{run.key}: of version {run.version}, but {number} is in force from {since}"
            check(is_in_force, text)

    def _check_success(self, before: Run | None, after: Run) -> None:
        if before is not None and before.state is RunState.UNRESOLVED:
            return  # a person resolved the run
        check(before is not None, f"{after.key} began as a success")
        claim = None if before is None else self.claims.get((after.key, before.token))
        is_true = claim is not None and claim.has_succeeded
        check(is_true, f"{after.key}: a success was recorded without a successful effect")

    def _running(self, transaction: Transaction, run: Run) -> list[Run]:
        return [
            each
            for each in transaction.rows(RUNS)
            if each.schedule_id == run.schedule_id and each.state is RunState.RUNNING
        ]

    def _run_spec(self, transaction: Transaction, run: Run) -> dict[str, Any]:
        version = transaction.get(VERSIONS, (run.schedule_id, run.version))
        run_spec: dict[str, Any] = orjson.loads(version["run_spec"])
        return run_spec

    # The events of targets

    def check_start(self, process: object, key: RunKey, token: int) -> ClaimRecord:
        now = self.store.now()
        claim = self.claims.get((key, token))
        check(claim is not None, f"{key} started without a claim, with token {token}")
        assert claim is not None
        check(claim.owner is process, f"{key} started in a process that had not claimed it")
        row = self.store.tables[RUNS][key]
        is_claimed = (row.state, row.token) == (RunState.RUNNING, token)
        text = f"{key} started when it was {row.state}, with token {row.token}, not {token}"
        check(is_claimed, text)
        check(not claim.has_started, f"{key} started twice with token {token}")
        check(now > claim.due_at - RESOLUTION, f"{key} started {claim.due_at - now} early")
        late = now - claim.lease_until
        check(now <= claim.lease_until, f"{key} started {late} after its lease")
        cancelled_at = self._cancelled_at(key)
        is_in_time = cancelled_at is None or now <= cancelled_at + CANCEL_LIMIT
        check(is_in_time, f"{key} started long after the response to its cancellation")
        claim.has_started = True
        return claim


def _has_effective_time(version: dict[str, Any]) -> bool:
    """Return whether the version took effect, or will, later than its acceptance."""
    is_later = version["effective_at"] > version["accepted_at"]
    return is_later and version["status"] in (VersionStatus.PENDING, VersionStatus.ACTIVE)


def due_time_of(run: Run) -> datetime:
    return run.next_attempt_at or run.due_at


def check(is_valid: object, text: str) -> None:
    if not is_valid:
        raise Violation(text)
