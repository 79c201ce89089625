"""The statements of `ticker/store` and `storage/runs/staging.py` in memory."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from tests.fakes.ledger.claims import ATTEMPTS, Schedules, Times
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, key_columns, numbered, run_of, unnested
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.storage.runs import staging
from harebell.ticker.model.version import VersionStatus
from harebell.ticker.next_times import NEXT_TIME
from harebell.ticker.overdue_schedules import OVERDUE_SCHEDULES
from harebell.ticker.store import command_results, versions
from harebell.ticker.store.schedules import STATEMENTS

STATES = "schedule_state"
VERSIONS = "schedule_versions"
COMMAND_RESULTS = "command_results"

_STATE_COLUMNS = (
    "schedule_id",
    "version",
    "state",
    "reason",
    "next_at",
    "planned_until",
    "changed_at",
    "dispatched",
    "open_runs",
    "awaited_run",
    "consecutive_failures",
    "paused_until",
    "pending_version",
    "pending_at",
    "skipped_times",
    "executions",
    "failures",
    "last_run",
)
_VERSION_COLUMNS = (
    "schedule_id",
    "version",
    "definition",
    "run_spec",
    "fingerprint",
    "accepted_at",
    "effective_at",
    "anchor_at",
    "status",
    "actor",
    "note",
)
_LOCKED_RUN_COLUMNS = (
    "state",
    "attempt",
    "seq",
    "due_at",
    "version",
    "lease_holder",
    "origin",
    "finished_at",
    "started_at",
    "replay_number",
    "stop_reason",
    "is_unstaged",
)
_TICKET_COLUMNS = (
    "expires_at",
    "seq",
    "version",
    "replay_number",
    "pool",
    "lane",
    "priority",
    "override",
    "reason",
)


@answers(STATEMENTS.save_states)
def save_states(tx: Transaction, *columns: Sequence[Any]) -> None:
    for values in unnested(*columns):
        state = dict(zip(_STATE_COLUMNS, values, strict=True))
        for name in ("open_runs", "skipped_times"):
            state[name] = [datetime.fromisoformat(text) for text in state[name].split()]
        tx.put(STATES, state["schedule_id"], state)


@answers(STATEMENTS.load_schedules)
def load_schedules(tx: Transaction, schedules: Sequence[UUID]) -> Iterator[Record]:
    for schedule in schedules:
        if tx.get(STATES, schedule) is not None:
            tx.lock(STATES, schedule)
            numbers = (v["version"] for v in tx.rows(VERSIONS) if v["schedule_id"] == schedule)
            yield tx.get(STATES, schedule) | {"last_number": max(numbers)}


@answers(STATEMENTS.load_due)
def load_due(tx: Transaction, until: datetime, limit: int, after: datetime) -> Iterator[Record]:
    return _load_due(tx, until, limit, after=after, is_loaded=lambda _: True)


@answers(STATEMENTS.load_due_of)
def load_due_of(tx: Transaction, *args: Any) -> Iterator[Record]:
    until, limit, after, tenants, are_included = args

    def is_loaded(state: Record) -> bool:
        version = tx.get(VERSIONS, (state["schedule_id"], state["version"]))
        is_named = orjson.loads(version["run_spec"])["tenant"] in tenants
        return is_named is are_included

    return _load_due(tx, until, limit, after=after, is_loaded=is_loaded)


def _load_due(
    tx: Transaction,
    until: datetime,
    limit: int,
    *,
    after: datetime,
    is_loaded: Callable[[Record], bool],
) -> Iterator[Record]:
    due = [s for s in tx.rows(STATES) if s["next_at"] and after < s["next_at"] <= until]
    count = 0
    for state in sorted(filter(is_loaded, due), key=lambda each: each["next_at"]):
        if count < limit and tx.try_lock(STATES, state["schedule_id"]):
            count += 1
            yield state | {"last_number": state["version"]}


@answers(STATEMENTS.find_pending)
def find_pending(tx: Transaction, schedules: Sequence[UUID]) -> list[Record]:
    pending = [
        version
        for version in tx.rows(VERSIONS)
        if version["schedule_id"] in schedules and version["status"] == VersionStatus.PENDING
    ]
    return sorted(pending, key=lambda each: each["effective_at"])


@answers(STATEMENTS.mark_next_errored)
def mark_next_errored(tx: Transaction, until: datetime, reason: str) -> Iterator[Record]:
    due = [s for s in tx.rows(STATES) if s["next_at"] and s["next_at"] <= until]
    for state in sorted(due, key=lambda each: each["next_at"]):
        schedule = state["schedule_id"]
        if tx.try_lock(STATES, schedule):
            errored = {"state": ScheduleState.ERRORED.value, "next_at": None, "reason": reason}
            tx.put(STATES, schedule, state | errored)
            yield {"schedule_id": schedule}
            return


@answers(NEXT_TIME)
def next_time(tx: Transaction, after: datetime) -> list[Record]:
    times = [state["next_at"] for state in tx.rows(STATES) if state["next_at"]]
    times = [each for each in times if each > after]
    return [{"min": min(times, default=None)}]


@answers(OVERDUE_SCHEDULES)
def overdue_schedules(tx: Transaction, limit: int) -> list[Record]:
    times = [state["next_at"] for state in tx.rows(STATES) if state["next_at"]]
    overdue = sorted(each for each in times if each < tx.now)[:limit]
    return [{"count": len(overdue), "min": min(overdue, default=None)}]


@answers(STATEMENTS.find_foreign)
def find_foreign(
    tx: Transaction, schedules: Sequence[UUID], tenants: Sequence[str]
) -> Iterator[Record]:
    owners = {
        version["schedule_id"]: orjson.loads(version["run_spec"])["tenant"]
        for version in tx.rows(VERSIONS)
    }
    for schedule, tenant in zip(schedules, tenants, strict=True):
        if owners.get(schedule, tenant) != tenant:
            yield {"id": schedule}


@answers(STATEMENTS.find_awaiting)
def find_awaiting(tx: Transaction, limit: int) -> list[Record]:
    awaiting = [
        {"schedule_id": state["schedule_id"]}
        for state in tx.rows(STATES)
        if state["awaited_run"] is not None and state["state"] == ScheduleState.ACTIVE
    ]
    return sorted(awaiting, key=lambda each: str(each["schedule_id"]))[:limit]


@answers(STATEMENTS.lock_runs)
def lock_runs(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        if (run := run_of(tx, key)) is not None:
            tx.lock(RUNS, key)
            yield key_columns(run) | {name: getattr(run, name) for name in _LOCKED_RUN_COLUMNS}


@answers(STATEMENTS.find_results)
def find_results(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for k, key in numbered(times, schedules):
        if (run := run_of(tx, key)) is not None:
            result = {name: getattr(run, name) for name in ("state", "attempt", "is_unstaged")}
            yield {"k": k} | result


@answers(STATEMENTS.find_counted)
def find_counted(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        is_unstaged = run is not None and run.state is RunState.CANCELLED and run.attempt == 0
        if run is not None and run.origin is None and not is_unstaged:
            yield key_columns(run)


@answers(STATEMENTS.find_unstaged_by_pause)
def find_unstaged_by_pause(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is None or not run.is_restageable or run.reason != Reason.PAUSED:
            continue
        if run.origin is None and run.replay_number == 0:
            yield key_columns(run)


@answers(versions.STATEMENTS.save_versions)
def save_versions(tx: Transaction, *columns: Sequence[Any]) -> None:
    for values in unnested(*columns):
        version = dict(zip(_VERSION_COLUMNS, values, strict=True))
        version_id = (version["schedule_id"], version["version"])
        if tx.get(VERSIONS, version_id) is not None:
            raise asyncpg.UniqueViolationError(f"The version {version_id} exists.")
        tx.put(VERSIONS, version_id, version)


@answers(versions.STATEMENTS.load)
def load_versions(
    tx: Transaction, schedules: Sequence[UUID], numbers: Sequence[int]
) -> Iterator[Record]:
    for version_id in zip(schedules, numbers, strict=True):
        if (version := tx.get(VERSIONS, version_id)) is not None:
            yield version | {"tenant": orjson.loads(version["run_spec"])["tenant"]}


@answers(versions.STATEMENTS.update_statuses)
def update_statuses(tx: Transaction, *columns: Sequence[Any]) -> None:
    for schedule, number, status, reason in unnested(*columns):
        version = tx.get(VERSIONS, (schedule, number))
        changed = version | {"status": status, "status_reason": reason}
        tx.put(VERSIONS, (schedule, number), changed)


@answers(versions.STATEMENTS.record_handovers)
def record_handovers(tx: Transaction, *columns: Sequence[Any]) -> None:
    for schedule, number, planned_from, planned_until in unnested(*columns):
        version = tx.get(VERSIONS, (schedule, number))
        handover = {"planned_from": planned_from, "planned_until": planned_until}
        decided = {name: time for name, time in handover.items() if time is not None}
        tx.put(VERSIONS, (schedule, number), version | decided)


@answers(versions.STATEMENTS.save_active_versions)
def ignore(_: Transaction, *__: Any) -> None:
    """Ignore the columns that only queries read."""


@answers(command_results.STATEMENTS.load_responses)
def load_responses(tx: Transaction, *columns: Sequence[Any]) -> Iterator[Record]:
    for tenant, request_id, item_index in unnested(*columns):
        response = tx.get(COMMAND_RESULTS, (tenant, request_id, item_index))
        if response is not None:
            key = {"tenant": tenant, "request_id": request_id, "item_index": item_index}
            yield key | {"response": response}


@answers(command_results.STATEMENTS.load_removed_until)
def load_removed_until(_: Transaction, __: str) -> Iterator[Record]:
    """Return no row, because no test of this ledger removes history."""
    return iter(())


@answers(command_results.STATEMENTS.record_responses)
def record_responses(tx: Transaction, *columns: Sequence[Any]) -> None:
    for tenant, request_id, item_index, response in unnested(*columns):
        key = (tenant, request_id, item_index)
        if tx.get(COMMAND_RESULTS, key) is not None:
            raise asyncpg.UniqueViolationError(f"The response of {request_id} exists.")
        tx.put(COMMAND_RESULTS, key, response)


@answers(staging.STATEMENTS.rebuild)
def rebuild_tickets(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for key in map(RunKey, times, schedules):
        run = run_of(tx, key)
        version = None if run is None else tx.get(VERSIONS, (run.schedule_id, run.version))
        if run is not None and version is not None:
            columns = {name: getattr(run, name) for name in _TICKET_COLUMNS}
            due = {"due_at": run.next_due, "run_spec": version["run_spec"]}
            previous = {"previous_trace": _previous_trace(tx, run)}
            yield key_columns(run) | columns | due | previous


def _previous_trace(tx: Transaction, run: Run) -> str | None:
    """Return the trace of the last attempt of any replay number."""
    attempts = [each for each in tx.rows(ATTEMPTS) if each["key"] == run.key]
    if not attempts or not (run.attempt or run.replay_number):
        return None
    last = max(attempts, key=lambda each: (each["replay_number"], each["number"]))
    trace: str | None = last["trace"]
    return trace
