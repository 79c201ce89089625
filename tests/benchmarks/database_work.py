"""The work of the database between two moments: bytes of WAL, commits and dead row versions."""

from dataclasses import dataclass
from typing import Any, Final

import asyncpg

# An update and a deletion each leave a dead row version. The statistics of a session reach the
# views within about a second, and `pg_stat_clear_snapshot` makes a new reading visible.
_WORK: Final = """
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes, d.xact_commit AS commits,
       (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables) AS dead
FROM pg_stat_database d WHERE d.datname = current_database()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseWork:
    """Counters of one database. The WAL is that of the whole server."""

    wal_bytes: int
    commits: int
    dead: int

    @classmethod
    async def read(cls, connection: asyncpg.Connection) -> "DatabaseWork":
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        row = await connection.fetchrow(_WORK)
        assert row is not None
        return cls(**row)

    def since(self, before: "DatabaseWork", count: int) -> dict[str, Any]:
        """Return the work for each of `count` runs since another reading."""
        return {
            "wal_bytes": round((self.wal_bytes - before.wal_bytes) / count),
            "commits": round((self.commits - before.commits) / count, 4),
            "dead_tuples": round((self.dead - before.dead) / count, 3),
        }
