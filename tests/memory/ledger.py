"""The ledger in memory, whole. Only tests reach it: no setting names it, no service imports it."""

from collections.abc import Callable
from datetime import UTC, datetime

from tests.memory import claims, desk, limits, schedules, staging, sweeps, turns
from tests.memory.pool import Pool, Port
from tests.memory.store import Store

ANSWERING = (
    claims,
    desk,
    limits,
    schedules,
    staging,
    sweeps,
    turns,
)  # imported, they have registered


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def open_ledger(now: Callable[[], datetime] = _wall_clock) -> Pool:
    """Empty."""
    return Pool(Store(now))


def reach(store: Store, port: Port, owner: object) -> Pool:
    """As one client of several has it; what it has begun falls with it."""
    return Pool(store, port, owner)
