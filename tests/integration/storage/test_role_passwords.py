"""The logins of the database roles: each role has its own password."""

from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.rig.servers import ROLE_PASSWORD

from harebell.storage.migrate import migrate

pytestmark = pytest.mark.postgres


def url_of(database_url: str, user: str, password: str) -> str:
    parts = urlsplit(database_url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


async def test_each_role_logs_in_with_its_own_password_only(database_url: str) -> None:
    own = {"harebell_intake": "intake's own", "harebell_ticker": "ticker-own"}

    try:
        await migrate(database_url, role_passwords=own)

        for role in own:
            for other, password in own.items():
                url = url_of(database_url, role, password.replace("'", "%27").replace(" ", "%20"))
                if role == other:
                    connection = await asyncpg.connect(url)
                    assert await connection.fetchval("SELECT current_user") == role
                    await connection.close()
                else:
                    with pytest.raises(asyncpg.InvalidPasswordError):
                        await asyncpg.connect(url)
        owner = await asyncpg.connect(database_url)
        try:
            stored = await owner.fetchval(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'harebell_intake'"
            )
        finally:
            await owner.close()
        assert stored.startswith("SCRAM-SHA-256$4096:")
    finally:  # the roles belong to the server, which other tests use
        await migrate(database_url, role_passwords=dict.fromkeys(own, ROLE_PASSWORD))
