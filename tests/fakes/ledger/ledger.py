"""The in-memory ledger. No service imports it, and no setting selects it."""

from collections.abc import Callable
from datetime import UTC, datetime

from tests.fakes.ledger import (
    calendars,
    claims,
    dead_letters,
    delays,
    delegation,
    label_slots,
    overlap,
    rate_limits,
    recovery,
    replays,
    schedules,
    staging,
)
from tests.fakes.ledger.pool import Pool, Port
from tests.fakes.ledger.store import Store

# The import of each module registers its answers.
ANSWERING = (
    calendars,
    claims,
    dead_letters,
    delays,
    delegation,
    label_slots,
    overlap,
    rate_limits,
    recovery,
    replays,
    schedules,
    staging,
)


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def open_ledger(now: Callable[[], datetime] = _wall_clock) -> Pool:
    """Return the pool of an empty ledger."""
    return Pool(Store(now))


def open_client(store: Store, port: Port, owner: object) -> Pool:
    """Return the pool of one of several clients. A crash of `owner` aborts its transactions."""
    return Pool(store, port, owner)
