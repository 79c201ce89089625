"""What a ticker asks of schedules and their versions, in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from tests.fakes.ledger.claims import Times, Schedules
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.recovery import key_of
from tests.fakes.ledger.runs import RUNS, Run, numbered, run_of, unnested
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.storage.runs.tickets import _ROWS
from harebell.ticker.store.command_results import _ANSWERED, _RECORD
from harebell.ticker.store.schedules import (
    _AWAITING,
    _COUNTED,
    _DUE,
    _ENTRIES,
    _OPEN_RUNS,
    _STATES,
    _STILL_OPEN,
    _TAKEN_BACK,
)
from harebell.ticker.store.versions import _FATES, _INSERT, _SCHEDULES, _TAKE_OVER, _VERSIONS

STATES = "schedule_state"
VERSIONS = "schedule_versions"
COMMAND_RESULTS = "commands"
NEXT_AT = "SELECT min(next_at) FROM schedule_state"

_STATE = (
    *("schedule_id", "version", "state", "reason", "next_at", "planned_until", "changed_at"),
    *("dispatched", "open_runs", "awaited_run", "consecutive_failures", "paused_until"),
    *("pending_version", "pending_at", "skipped_times"),
)
_VERSION = (
    *("schedule_id", "version", "definition", "run_spec", "fingerprint", "accepted_at"),
    *("effective_at", "anchor_at", "status", "actor", "note"),
)


@answers(_STATES)
def save_states(tx: Transaction, *columns: Sequence[Any]) -> None:
    for values in unnested(*columns):
        state = dict(zip(_STATE, values, strict=True))
        for name in ("open_runs", "skipped_times"):
            state[name] = [datetime.fromisoformat(text) for text in state[name].split()]
        tx.put(STATES, state["schedule_id"], state)


@answers(_ENTRIES)
def entries(tx: Transaction, schedules: Sequence[UUID]) -> Iterator[Record]:
    for schedule in schedules:
        if tx.get(STATES, schedule) is not None:
            tx.lock(STATES, schedule)
            numbers = (v["version"] for v in tx.rows(VERSIONS) if v["schedule_id"] == schedule)
            yield tx.get(STATES, schedule) | {"last_number": max(numbers)}


@answers(_DUE)
def due(tx: Transaction, until: datetime, limit: int, after: datetime) -> Iterator[Record]:
    ready = [s for s in tx.rows(STATES) if s["next_at"] and after < s["next_at"] <= until]
    told = 0
    for state in sorted(ready, key=lambda each: each["next_at"]):
        if told < limit and tx.try_lock(STATES, state["schedule_id"]):
            told += 1
            yield state | {"last_number": state["version"]}


@answers(NEXT_AT)
def next_at(tx: Transaction) -> list[Record]:
    moments = [state["next_at"] for state in tx.rows(STATES) if state["next_at"]]
    return [{"min": min(moments, default=None)}]


@answers(_AWAITING)
def awaiting(tx: Transaction, limit: int) -> list[Record]:
    waiting = [
        {"schedule_id": state["schedule_id"]}
        for state in tx.rows(STATES)
        if state["awaited_run"] is not None and state["state"] == ScheduleState.ACTIVE
    ]
    return sorted(waiting, key=lambda each: str(each["schedule_id"]))[:limit]


@answers(_OPEN_RUNS)
def open_runs(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    names = (
        *("state", "attempt", "seq", "due_at", "version", "lease_holder", "origin"),
        *("finished_at", "started_at", "replay_number"),
    )
    for _, key in numbered(moments, schedules):
        if (run := run_of(tx, key)) is not None:
            tx.lock(RUNS, key)
            yield key_of(run) | {name: getattr(run, name) for name in names} | _stop(run)


def _stop(run: Run) -> Record:
    return {"stop": run.stop_reason}


@answers(_STILL_OPEN)
def still_open(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is not None and run.finished_at is None:
            yield key_of(run)


@answers(_COUNTED)
def counted(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        withdrawn = run is not None and run.state is RunState.CANCELLED and run.attempt == 0
        if run is not None and run.origin is None and not withdrawn:
            yield key_of(run)


@answers(_TAKEN_BACK)
def taken_back(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is None or not run.is_restageable or run.reason != Reason.PAUSED:
            continue
        if run.origin is None and run.replay_number == 0:
            yield key_of(run)


@answers(_INSERT)
def save_versions(tx: Transaction, *columns: Sequence[Any]) -> None:
    for values in unnested(*columns):
        version = dict(zip(_VERSION, values, strict=True))
        place = (version["schedule_id"], version["version"])
        if tx.get(VERSIONS, place) is not None:
            raise asyncpg.UniqueViolationError(f"version {place} is there")
        tx.put(VERSIONS, place, version)


@answers(_VERSIONS)
def versions(
    tx: Transaction, schedules: Sequence[UUID], numbers: Sequence[int]
) -> Iterator[Record]:
    for place in zip(schedules, numbers, strict=True):
        if (version := tx.get(VERSIONS, place)) is not None:
            yield version | {"tenant": orjson.loads(version["run_spec"])["tenant"]}


@answers(_FATES)
def fates(tx: Transaction, *columns: Sequence[Any]) -> None:
    for schedule, number, fate, reason in unnested(*columns):
        version = tx.get(VERSIONS, (schedule, number))
        tx.put(VERSIONS, (schedule, number), version | {"status": fate, "status_reason": reason})


@answers(_TAKE_OVER)
@answers(_SCHEDULES)
def nothing(_: Transaction, *__: Any) -> None:
    """What only users and audits read."""


@answers(_ANSWERED)
def answered(tx: Transaction, *columns: Sequence[Any]) -> Iterator[Record]:
    for tenant, request, item in unnested(*columns):
        if (answer := tx.get(COMMAND_RESULTS, (tenant, request, item))) is not None:
            named = {"tenant": tenant, "request_id": request, "item_index": item}
            yield named | {"response": answer}


@answers(_RECORD)
def record(tx: Transaction, *columns: Sequence[Any]) -> None:
    for tenant, request, item, answer in unnested(*columns):
        if tx.get(COMMAND_RESULTS, (tenant, request, item)) is not None:
            raise asyncpg.UniqueViolationError(f"{request} has been answered")
        tx.put(COMMAND_RESULTS, (tenant, request, item), answer)


@answers(_ROWS)
def ticket_rows(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    names = (
        *("expires_at", "seq", "version", "replay_number", "pool", "lane"),
        *("priority", "override", "reason"),
    )
    for key in map(RunKey, moments, schedules):
        run = run_of(tx, key)
        written = None if run is None else tx.get(VERSIONS, (run.schedule_id, run.version))
        if run is not None and written is not None:
            told = {name: getattr(run, name) for name in names}
            due_at = run.next_attempt_at or run.due_at
            yield key_of(run) | told | {"due_at": due_at, "run_spec": written["run_spec"]}
