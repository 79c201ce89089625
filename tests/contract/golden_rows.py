"""A ledger as the first version left it, brought to the newest schema."""

from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
from tests.rig.servers import ROLE_PASSWORD, Servers

from harebell.storage.migrate import migrate

ROWS: Final = Path(__file__).with_name("ledger_v1.sql")
REVISION: Final = "0002"
DAY: Final = date(2026, 11, 21)  # of its runs
_PORT: Final = "127.0.0.1:33433"  # of the target that they know
_SHORTER: Final = {"runs?sleep=60": "runs", "retries?fail=1": "retries"}


def rows(port: int | None = None) -> str:
    """As they were; or such that they are well served by a target that has this port now."""
    text = ROWS.read_text()
    changes = {} if port is None else _SHORTER | {_PORT: f"127.0.0.1:{port}"}
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


async def rebuild(servers: Servers, url: str, statements: str) -> None:
    """The database of that URL, made anew with those rows in it."""
    await servers.drop_database(url)
    owner = await asyncpg.connect(servers.database_url)
    try:
        await owner.execute(f"CREATE DATABASE {urlsplit(url).path.strip('/')}")
    finally:
        await owner.close()
    await migrate(url, to=REVISION)
    ledger = await asyncpg.connect(url)
    try:
        await ledger.execute("SELECT harebell_ensure_partitions($1, $1)", DAY)
        await ledger.execute(statements)
    finally:
        await ledger.close()
    await migrate(url, role_password=ROLE_PASSWORD)
