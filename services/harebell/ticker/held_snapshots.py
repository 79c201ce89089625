"""Metrics of held snapshots, which prevent the cleanup of dead rows of the ledger."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.storage.engine import translate_db_errors
from harebell.storage.snapshot_holders import SnapshotHolder, load_snapshot_holders
from harebell.ticker import metrics

REFRESH_INTERVAL: Final = 15.0  # seconds
MIN_NAMED_AGE: Final = 60.0  # seconds; a metric names the holder of an older snapshot
MAX_NAMED: Final = 5  # holders that the metrics name at the same time

Key: TypeAlias = tuple[str, int | None, str, str]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot and its age, which is the time since an earlier reading or longer."""

    holder: SnapshotHolder
    age: float  # seconds


@dataclass(slots=True)
class SnapshotAges:
    """The ages of snapshots, from repeated readings of their holders.

    PostgreSQL records no time of a snapshot. A session whose horizon differs between two readings
    has replaced its snapshot, so its age begins again.
    """

    _first_read: dict[Key, datetime] = field(default_factory=dict)

    def observe(self, holders: Iterable[SnapshotHolder]) -> list[HeldSnapshot]:
        """Return the snapshots of this reading, oldest first. Forget the snapshots of others.

        A snapshot without a later transaction prevents nothing, and the result omits it.
        """
        held, first_read = [], {}
        for each in holders:
            since = first_read[each.key] = self._first_read.get(each.key, each.read_at)
            if each.transactions > 0:
                start = since if each.held_since is None else min(since, each.held_since)
                held.append(HeldSnapshot(each, (each.read_at - start).total_seconds()))
        self._first_read = first_read
        return sorted(held, key=lambda each: each.age, reverse=True)


@dataclass(slots=True)
class HeldSnapshotMetrics:
    """The refresh of the metrics of held snapshots. Every ticker shows about the same values."""

    pool: asyncpg.Pool
    _ages: SnapshotAges = field(default_factory=SnapshotAges)

    async def run(self) -> None:
        """Refresh the metrics until the task is cancelled."""
        while True:
            try:
                await self.refresh()
            except Transient as error:
                log.warning("snapshot count failed", error=error.code, reason=error.reason)
            await asyncio.sleep(REFRESH_INTERVAL)

    async def refresh(self) -> None:
        """Read the holders and set the metrics. Raise `DatabaseUnavailable`."""
        with translate_db_errors():
            held = self._ages.observe(await load_snapshot_holders(self.pool))
        metrics.OLDEST_SNAPSHOT_AGE.set(held[0].age if held else 0)
        # A holder is named only while it exists, so old names leave no series.
        metrics.HELD_SNAPSHOT_AGE.clear()
        metrics.HELD_SNAPSHOT_TRANSACTIONS.clear()
        for each in held[:MAX_NAMED]:
            if each.age >= MIN_NAMED_AGE:
                labels = _labels(each.holder)
                metrics.HELD_SNAPSHOT_AGE.labels(*labels).set(each.age)
                metrics.HELD_SNAPSHOT_TRANSACTIONS.labels(*labels).set(each.holder.transactions)


def _labels(holder: SnapshotHolder) -> tuple[str, str, str, str]:
    """Return the labels of a holder. Prometheus removes a label that is empty."""
    pid = "" if holder.pid is None else str(holder.pid)
    return (holder.kind, pid, holder.application_name, holder.username)
