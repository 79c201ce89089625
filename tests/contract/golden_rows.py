"""The ledger of version 1, in a database with the newest schema."""

from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
from tests.rig.servers import ROLE_PASSWORD, Servers

from harebell.storage.migrate import migrate
from harebell.storage.role_passwords import ROLES

ROWS: Final = Path(__file__).with_name("ledger_v1.sql")
REVISION: Final = "0001"
DAY: Final = date(2026, 11, 21)  # of its runs
_ADDRESS: Final = "127.0.0.1:33433"  # of the target of its runs
_SIMPLE_PATHS: Final = {"runs?sleep=60": "runs", "retries?fail=1": "retries"}


def rows(port: int | None = None) -> str:
    """Return the rows as SQL. With a port, the runs call a target that succeeds at that port."""
    text = ROWS.read_text()
    changes = {} if port is None else _SIMPLE_PATHS | {_ADDRESS: f"127.0.0.1:{port}"}
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


async def rebuild(servers: Servers, url: str, statements: str) -> None:
    """Create the database of the URL again, with the rows of `statements`."""
    await servers.drop_database(url)
    owner = await asyncpg.connect(servers.database_url)
    try:
        await owner.execute(f"CREATE DATABASE {urlsplit(url).path.strip('/')}")
    finally:
        await owner.close()
    await migrate(url, to=REVISION)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT harebell_ensure_partitions($1, $1)", DAY)
        await connection.execute(statements)
    finally:
        await connection.close()
    await migrate(url, role_passwords=dict.fromkeys(ROLES, ROLE_PASSWORD))
