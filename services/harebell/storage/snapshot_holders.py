"""Holders of old snapshots, which prevent the cleanup of dead rows: the SQL and its rows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

MAX_HOLDERS: Final = 20  # the bound in the SQL function, which returns the oldest snapshots

LOAD_HOLDERS: Final = (
    "SELECT kind, pid, application_name, username, state, since, horizon, transactions, "
    "clock_timestamp() AS read_at FROM harebell_snapshot_holders()"
)
_IDLE: Final = "idle in transaction"  # the beginning of two states of PostgreSQL


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHolder:
    """A session, a prepared transaction or a replication slot with a snapshot.

    `horizon` is the oldest transaction id that the holder may still read. `transactions` is the
    number of transaction ids since then. `since` is the start of the transaction, or None if the
    owner of the database may not read it.
    """

    kind: str
    pid: int | None
    application_name: str
    username: str
    state: str | None
    since: datetime | None
    horizon: str
    transactions: int
    read_at: datetime

    @property
    def key(self) -> tuple[str, int | None, str, str]:
        """The identity of the snapshot: a session with another horizon has another snapshot."""
        return (self.kind, self.pid, self.application_name, self.horizon)

    @property
    def held_since(self) -> datetime | None:
        """The start of the transaction if the snapshot belongs to all of it, or None.

        A session that works may have a new snapshot for each of its statements.
        """
        is_whole = self.kind == "prepared" or (self.state or "").startswith(_IDLE)
        return self.since if is_whole else None


async def load_snapshot_holders(
    connection: asyncpg.Connection | asyncpg.Pool,
) -> list[SnapshotHolder]:
    """Return at most `MAX_HOLDERS` holders, the oldest snapshot first."""
    return [
        SnapshotHolder(
            **{
                **row,
                "application_name": row["application_name"] or "",
                "username": row["username"] or "",
            }
        )
        for row in await connection.fetch(LOAD_HOLDERS)
    ]
