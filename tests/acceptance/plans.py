"""The ledger's hot statements, and the plans that the database makes for them."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.ids import RunKey
from harebell.domain.run_states import SUCCEEDED, AttemptCompletion, Reason, RunState
from harebell.storage.runs import claims, completion, overlap, recovery, staging
from harebell.ticker import backlog
from harebell.ticker.store import schedules

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NEW_DAY = TODAY + timedelta(days=1)
KEYS = [RunKey(NEW_DAY + timedelta(seconds=k), UUID(int=k)) for k in range(500)]
SCHEDULES = [key.schedule_id for key in KEYS]
REPLACED = (RunState.CANCELLED, Reason.REPLACED)


@dataclass
class Explainer:
    """Stands where a pool or a connection would; keeps the plans of what it is given to do."""

    connection: asyncpg.Connection
    nodes: list[dict[str, Any]] = field(default_factory=list)
    cost: float = 0.0

    async def fetch(self, statement: str, *given: object) -> list[Any]:
        """Prepared as the driver would, and as generic as the settings make it."""
        await self.connection.execute(f"PREPARE asked AS {statement}")
        nothing = f"({', '.join(['NULL'] * len(given))})" if given else ""
        told = await self.connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked{nothing}")
        await self.connection.execute("DEALLOCATE asked")
        plan = orjson.loads(told)[0]["Plan"]
        self.nodes += walk(plan)
        self.cost += plan["Total Cost"]
        return []

    execute = fetch

    async def fetchval(self, statement: str, *given: object) -> None:
        await self.fetch(statement, *given)

    @property
    def kinds(self) -> set[str]:
        return {node["Node Type"] for node in self.nodes}

    @property
    def scanned(self) -> set[str]:
        """Tables that are read from end to end."""
        return {n["Relation Name"] for n in self.nodes if n["Node Type"] == "Seq Scan"}


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


def wanted() -> list[claims.ClaimKey]:
    return [
        claims.ClaimKey(key=key, seq=1, version=1, override=None, lease=15.0, due_at=NEW_DAY)
        for key in KEYS
    ]


def held() -> list[claims.Claim]:
    return [claims.Claim(key, 1, 1, NEW_DAY) for key in KEYS]


def endings_of(state: RunState) -> list[AttemptCompletion]:
    return [AttemptCompletion(key, 1, state, SUCCEEDED, NEW_DAY, NEW_DAY) for key in KEYS]


class NoVersions:
    async def of(self, *_: object) -> dict[object, object]:
        return {}


Statement = Callable[[Any], Awaitable[object]]
STATEMENTS: dict[str, Statement] = {
    "claim": lambda at: claims.claim(at, wanted(), "executor-1"),
    "explain a refused claim": lambda at: claims.explain_rejection(at, wanted(), "executor-1"),
    "renew": lambda at: claims.renew(at, held()),
    "drop": lambda at: claims.cancel_unstarted(at, held()),
    "release": lambda at: claims.return_unstarted(at, held()),
    "settle": lambda at: completion.complete(at, endings_of(RunState.SUCCEEDED)),
    "read a settle back": lambda at: completion.find_recorded(at, endings_of(RunState.SUCCEEDED)),
    "cancel": lambda at: staging.cancel(at, dict.fromkeys(KEYS, Reason.CANCELLED)),
    "ask to stop": lambda at: staging.request_stop(at, dict.fromkeys(KEYS, Reason.CANCELLED)),
    "sweep of lost tickets": recovery.find_lost_tickets,
    "expire": lambda at: recovery.expire_overdue(at, KEYS),
    "stage again": lambda at: recovery.mark_restaged(at, KEYS),
    "holders": recovery.find_lease_holders,
    "sweep of lease_expired leases": lambda at: recovery.lock_expired_leases(
        at, ["executor-1"], by_time=True
    ),
    "what stands": lambda at: overlap.open_run_rows(at, SCHEDULES),
    "what stands, locked": lambda at: overlap.lock_open_run_rows(at, KEYS),
    "take overlap_slots": lambda at: overlap.save_slots(
        at, dict.fromkeys(KEYS, overlap.Role.RUNNING)
    ),
    "hold back": lambda at: overlap.mark_waiting(at, KEYS),
    "give up": lambda at: overlap.finish_without_attempt(at, dict.fromkeys(KEYS, REPLACED)),
    "wake": lambda at: overlap.wake(at, KEYS),
    "forget overlap_slots": lambda at: overlap.delete_stale_slots(at, SCHEDULES),
    "stuck schedules": overlap.find_stalled,
    "backlog": backlog.count_due_runs,
    "overdue schedules": backlog.count_overdue_schedules,
    "what is due": lambda at: schedules.load_due(at, cast("Any", NoVersions()), NEW_DAY, 1_000),
}
