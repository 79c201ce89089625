"""What each service's role may do in the database: its part, and nothing else."""

import asyncpg
import pytest
from tests.rig.servers import as_role

pytestmark = pytest.mark.postgres

READ, ADD, CHANGE, REMOVE = "SELECT", "INSERT", "UPDATE", "DELETE"
SERVICES = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector", "auditor")

_GRANTED = """
SELECT table_name, privilege_type FROM information_schema.role_table_grants
WHERE grantee = $1 AND table_schema = 'public'
"""
_FREEDOMS = """
SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls,
       EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid) AS is_member,
       has_schema_privilege(oid, 'public', 'CREATE') AS may_create
FROM pg_roles r WHERE rolname = $1
"""
_WRITES = {
    "intake": {},
    "dispatcher": {},
    "auditor": {},
    "executor": {
        "runs": {CHANGE},
        "attempts": {ADD},
        "overlap_slots": {ADD, CHANGE, REMOVE},
        "limits": {ADD, CHANGE},
    },
    "dlq_inspector": {
        "alerts": {ADD, CHANGE, REMOVE},
        "runs": {CHANGE},
        "dead_letters": {ADD, CHANGE, REMOVE},
        "failure_groups": {ADD, CHANGE, REMOVE},
        "replay_jobs": {ADD, CHANGE, REMOVE},
        "replay_items": {ADD, CHANGE, REMOVE},
        "replays": {ADD, CHANGE, REMOVE},
    },
    "ticker": {
        "schedules": {ADD, CHANGE},
        "schedule_state": {ADD, CHANGE},
        "schedule_versions": {ADD, CHANGE},
        "commands": {ADD, REMOVE},
        "bulk_operations": {ADD, REMOVE},
        "tzdata_version": {ADD, CHANGE},
        "runs": {ADD, CHANGE},
        "attempts": {ADD},
        "overlap_slots": {ADD, CHANGE, REMOVE},
        "limits": {REMOVE},
        "breakers": {ADD, CHANGE, REMOVE},
    },
}


@pytest.mark.requirement("S51", "ASK-16")
async def test_the_executors_role_cannot_write_schedules(database_url: str) -> None:
    executor = await asyncpg.connect(as_role(database_url, "executor"))
    try:
        for statement in (
            "INSERT INTO schedules SELECT * FROM schedules",
            "UPDATE schedules SET owner = 'me'",
            "DELETE FROM schedules",
            "INSERT INTO runs SELECT * FROM runs",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await executor.execute(statement)
    finally:
        await executor.close()


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("service", SERVICES)
async def test_a_services_role_writes_only_its_own_tables_and_is_nobody_special(
    service: str, database_url: str
) -> None:
    connection = await asyncpg.connect(as_role(database_url, service))
    try:
        granted = await connection.fetch(_GRANTED, f"harebell_{service}")
        freedoms = await connection.fetchrow(_FREEDOMS, f"harebell_{service}")
    finally:
        await connection.close()

    writes: dict[str, set[str]] = {}
    for table, privilege in granted:
        if privilege != READ:
            writes.setdefault(table, set()).add(privilege)
    assert writes == _WRITES[service]
    assert not any(freedoms.values())


async def test_the_dispatchers_role_reads_nothing_but_the_time(database_url: str) -> None:
    connection = await asyncpg.connect(as_role(database_url, "dispatcher"))
    try:
        told = await connection.fetchval("SELECT clock_timestamp()")
        granted = await connection.fetch(_GRANTED, "harebell_dispatcher")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM runs")
    finally:
        await connection.close()

    assert told is not None
    assert granted == []
