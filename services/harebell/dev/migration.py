"""Bringing a database to the newest schema, with logins for the services' roles."""

import asyncio
from urllib.parse import urlsplit


def migrate(database_url: str) -> None:
    """Blocks, so from a coroutine call it in a thread. The roles get the password of the URL."""
    # Imported only when used: alembic is slow to load, and `status` and `logs` do without it.
    from harebell.kernel.db.migrate import migrate as to_newest  # noqa: PLC0415

    asyncio.run(to_newest(database_url, role_password=urlsplit(database_url).password))
