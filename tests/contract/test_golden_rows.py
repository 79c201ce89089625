"""The present code reads the rows that the services of version 1 wrote."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.contract import golden_rows
from tests.rig.servers import Servers

from harebell.contract.ids import RunKey
from harebell.contract.schedule import Definition
from harebell.storage.runs.staging import rebuild_tickets

pytestmark = pytest.mark.postgres

VERSIONS = 24
STATES = {
    "staged",
    "running",
    "retrying",
    "dead",
    "unresolved",
    "cancelled",
    "skipped",
    "expired",
    "succeeded",
}


@pytest.fixture
async def rows(servers: Servers, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    await golden_rows.rebuild(servers, database_url, golden_rows.rows())
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.mark.requirement("S35")
async def test_ticket_of_each_run_of_v1_is_rebuilt_from_the_tables(
    rows: asyncpg.Connection,
) -> None:
    runs = await rows.fetch("SELECT * FROM runs ORDER BY scheduled_for, schedule_id")
    keys = [RunKey(run["scheduled_for"], run["schedule_id"]) for run in runs]

    tickets = await rebuild_tickets(rows, keys)

    assert {run["state"] for run in runs} == STATES
    assert [(ticket.run_key, ticket.seq, ticket.lane) for ticket in tickets] == [
        (key, run["seq"], run["lane"]) for key, run in zip(keys, runs, strict=True)
    ]


async def test_definition_of_each_version_of_v1_has_the_same_fingerprint(
    rows: asyncpg.Connection,
) -> None:
    found = await rows.fetch("SELECT definition, fingerprint FROM schedule_versions")

    definitions = [Definition.model_validate_json(row["definition"]) for row in found]

    assert len(definitions) == VERSIONS
    assert [each.fingerprint() for each in definitions] == [row["fingerprint"] for row in found]
