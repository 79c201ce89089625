"""The frequent statements of the services, and the query plans of PostgreSQL for them."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.ids import RunKey
from harebell.domain.concurrency import Label
from harebell.domain.run_states import SUCCEEDED, AttemptCompletion, Reason, RunState
from harebell.storage.runs import claims, completion, label_slots, overlap, recovery, staging
from harebell.ticker import backlog
from harebell.ticker.overdue_schedules import read_overdue
from harebell.ticker.store import schedules

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NEW_DAY = TODAY + timedelta(days=1)
KEYS = [RunKey(NEW_DAY + timedelta(seconds=k), UUID(int=k)) for k in range(500)]
SCHEDULES = [key.schedule_id for key in KEYS]
LABELS = [Label("acme", f"label-{k}") for k in range(10)]
REPLACED = (RunState.CANCELLED, Reason.REPLACED)


@dataclass
class Explainer:
    """A fake pool or connection that plans each statement and does not execute the statement."""

    connection: asyncpg.Connection
    nodes: list[dict[str, Any]] = field(default_factory=list)
    cost: float = 0.0

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """Plan a prepared statement, like the driver, with the generic plan of the settings."""
        await self.connection.execute(f"PREPARE planned AS {statement}")
        parameters = f"({', '.join(['NULL'] * len(arguments))})" if arguments else ""
        plan_text = await self.connection.fetchval(
            f"EXPLAIN (FORMAT JSON) EXECUTE planned{parameters}"
        )
        await self.connection.execute("DEALLOCATE planned")
        plan = orjson.loads(plan_text)[0]["Plan"]
        self.nodes += walk(plan)
        self.cost += plan["Total Cost"]
        return []

    execute = fetch

    async def fetchval(self, statement: str, *arguments: object) -> None:
        await self.fetch(statement, *arguments)

    fetchrow = fetchval

    @property
    def kinds(self) -> set[str]:
        return {node["Node Type"] for node in self.nodes}

    @property
    def scanned(self) -> set[str]:
        """Return the tables that the plans read completely."""
        return {n["Relation Name"] for n in self.nodes if n["Node Type"] == "Seq Scan"}


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


def claim_keys() -> list[claims.ClaimKey]:
    return [
        claims.ClaimKey(key=key, seq=1, version=1, override=None, lease=15.0, due_at=NEW_DAY)
        for key in KEYS
    ]


def claims_of_keys() -> list[claims.Claim]:
    return [claims.Claim(key, 1, 1, NEW_DAY) for key in KEYS]


def completions_to(state: RunState) -> list[AttemptCompletion]:
    return [AttemptCompletion(key, 1, state, SUCCEEDED, NEW_DAY, NEW_DAY) for key in KEYS]


class NoVersions:
    async def load(self, *_: object) -> dict[object, object]:
        return {}


Statement = Callable[[Any], Awaitable[object]]
STATEMENTS: dict[str, Statement] = {
    "claim": lambda connection: claims.claim(connection, claim_keys(), "executor-1"),
    "explain a rejected claim": lambda connection: claims.explain_rejection(
        connection, claim_keys(), "executor-1"
    ),
    "renew": lambda connection: claims.renew(connection, claims_of_keys()),
    "cancel unstarted": lambda connection: claims.cancel_unstarted(connection, claims_of_keys()),
    "return unstarted": lambda connection: claims.return_unstarted(connection, claims_of_keys()),
    "complete": lambda connection: completion.complete(
        connection, completions_to(RunState.SUCCEEDED)
    ),
    "find recorded": lambda connection: completion.find_recorded(
        connection, completions_to(RunState.SUCCEEDED)
    ),
    "cancel": lambda connection: staging.cancel(connection, dict.fromkeys(KEYS, Reason.CANCELLED)),
    "request stop": lambda connection: staging.request_stop(
        connection, dict.fromkeys(KEYS, Reason.CANCELLED)
    ),
    "find lost tickets": recovery.find_lost_tickets,
    "expire": lambda connection: recovery.expire_overdue(connection, KEYS),
    "mark restaged": lambda connection: recovery.mark_restaged(connection, KEYS),
    "find lease holders": recovery.find_lease_holders,
    "lock expired leases": lambda connection: recovery.lock_expired_leases(
        connection, ["executor-1"], by_time=True
    ),
    "open runs": lambda connection: overlap.open_run_rows(connection, SCHEDULES),
    "lock open runs": lambda connection: overlap.lock_open_run_rows(connection, KEYS),
    "save overlap slots": lambda connection: overlap.save_slots(
        connection, dict.fromkeys(KEYS, overlap.Role.RUNNING)
    ),
    "mark waiting": lambda connection: overlap.mark_waiting(connection, KEYS),
    "finish without attempt": lambda connection: overlap.finish_without_attempt(
        connection, dict.fromkeys(KEYS, REPLACED)
    ),
    "wake": lambda connection: overlap.wake(connection, KEYS),
    "delete stale overlap slots": lambda connection: overlap.delete_stale_slots(
        connection, SCHEDULES
    ),
    "find stalled schedules": overlap.find_stalled,
    "slots of labels": lambda connection: label_slots.read_slots(connection, LABELS),
    "places in the line": lambda connection: label_slots.places(connection, KEYS),
    "wake for labels": lambda connection: label_slots.wake(connection, KEYS),
    "delete stale label slots": lambda connection: label_slots.delete_stale(
        connection, LABELS, with_waiting=True
    ),
    "find stalled labels": label_slots.find_stalled,
    "backlog": backlog.count_due_runs,
    "overdue schedules": read_overdue,
    "find ended runs": lambda connection: schedules.find_ended(connection, KEYS),
    "load due schedules": lambda connection: schedules.load_due(
        connection, cast("Any", NoVersions()), NEW_DAY, limit=1_000
    ),
}
