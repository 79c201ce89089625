"""The ledger in memory, whole. Only tests reach it: no setting names it, no service imports it."""

from collections.abc import Callable
from datetime import UTC, datetime

from tests.fakes.ledger import (
    claims,
    dead_letters,
    overlap,
    rate_limits,
    recovery,
    schedules,
    staging,
)
from tests.fakes.ledger.pool import Pool, Port
from tests.fakes.ledger.store import Store

ANSWERING = (
    claims,
    dead_letters,
    rate_limits,
    schedules,
    staging,
    recovery,
    overlap,
)  # imported, they have registered


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def open_ledger(now: Callable[[], datetime] = _wall_clock) -> Pool:
    """Empty."""
    return Pool(Store(now))


def open_client(store: Store, port: Port, owner: object) -> Pool:
    """As one client of several has it; what it has begun falls with it."""
    return Pool(store, port, owner)
