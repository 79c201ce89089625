"""The grants of each service role in the database, which must be the minimum."""

import re

import asyncpg
import pytest
from tests.rig.servers import as_role

pytestmark = pytest.mark.postgres

SELECT, INSERT, UPDATE, DELETE = "SELECT", "INSERT", "UPDATE", "DELETE"
SERVICES = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector", "auditor")

_GRANTS = """
SELECT table_name, privilege_type FROM information_schema.role_table_grants
WHERE grantee = $1 AND table_schema = 'public'
"""
_ATTRIBUTES = """
SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls,
       EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid) AS is_member,
       has_schema_privilege(oid, 'public', 'CREATE') AS may_create
FROM pg_roles r WHERE rolname = $1
"""
_WRITE_GRANTS = {
    "intake": {"tenant_usage": {INSERT, UPDATE}},
    "dispatcher": {},
    "auditor": {},
    "executor": {
        "runs": {UPDATE},
        "attempts": {INSERT},
        "overlap_slots": {INSERT, UPDATE, DELETE},
        "label_slots": {INSERT, UPDATE, DELETE},
        "rate_limits": {INSERT, UPDATE},
    },
    "dlq_inspector": {
        "alerts": {INSERT, UPDATE, DELETE},
        "alert_posts": {INSERT, UPDATE, DELETE},
        "runs": {UPDATE},
        "dead_letters": {INSERT, UPDATE, DELETE},
        "failure_groups": {INSERT, UPDATE, DELETE},
        "replay_jobs": {INSERT, UPDATE, DELETE},
        "replay_items": {INSERT, UPDATE, DELETE},
        "replays": {INSERT, UPDATE, DELETE},
    },
    "ticker": {
        "schedules": {INSERT, UPDATE, DELETE},
        "schedule_state": {INSERT, UPDATE, DELETE},
        "schedule_versions": {INSERT, UPDATE, DELETE},
        "calendar_versions": {INSERT, DELETE},
        "schedule_calendars": {INSERT, DELETE},
        "history_marks": {INSERT, UPDATE},
        "maintenance_leases": {INSERT, UPDATE},
        "last_runs": {INSERT, UPDATE, DELETE},
        "examined_days": {INSERT, UPDATE, DELETE},
        "archive_parts": {INSERT, UPDATE, DELETE},
        "command_results": {INSERT, DELETE},
        "bulk_operations": {INSERT, DELETE},
        "tzdata_version": {INSERT, UPDATE},
        "runs": {INSERT, UPDATE, DELETE},
        "attempts": {INSERT, DELETE},
        "overlap_slots": {INSERT, UPDATE, DELETE},
        "label_slots": {INSERT, UPDATE, DELETE},
        "rate_limits": {DELETE},
        "breakers": {INSERT, UPDATE, DELETE},
        "breaker_deferrals": {INSERT, UPDATE, DELETE},
        "tenant_usage": {INSERT, UPDATE, DELETE},
        "tenant_breakers": {INSERT, UPDATE, DELETE},
        "tenant_breaker_deferrals": {INSERT, UPDATE, DELETE},
    },
}


# A statement that names the partition of a day needs rights on it.
_WRITE_GRANTS_ON_EACH_DAY = {"executor": {"runs": {UPDATE}, "attempts": {INSERT}}}
_DAY = re.compile(r"_\d{8}$")


@pytest.mark.requirement("S51", "ASK-16")
async def test_executor_role_cannot_write_schedules(database_url: str) -> None:
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
async def test_service_role_writes_only_its_tables_and_has_no_special_attribute(
    service: str, database_url: str
) -> None:
    connection = await asyncpg.connect(as_role(database_url, service))
    try:
        grants = await connection.fetch(_GRANTS, f"harebell_{service}")
        attributes = await connection.fetchrow(_ATTRIBUTES, f"harebell_{service}")
    finally:
        await connection.close()

    writes: dict[str, set[str]] = {}
    for table, privilege in grants:
        if privilege != SELECT:
            writes.setdefault(table, set()).add(privilege)
    on_days = {table: writes.pop(table) for table in [*writes] if _DAY.search(table)}
    expected = _WRITE_GRANTS_ON_EACH_DAY.get(service, {})
    assert writes == _WRITE_GRANTS[service]
    assert {_DAY.sub("", table) for table in on_days} == set(expected)
    assert [t for t, writes in on_days.items() if writes != expected[_DAY.sub("", t)]] == []
    assert not any(attributes.values())


async def test_dispatcher_role_reads_only_the_time(database_url: str) -> None:
    connection = await asyncpg.connect(as_role(database_url, "dispatcher"))
    try:
        time = await connection.fetchval("SELECT clock_timestamp()")
        grants = await connection.fetch(_GRANTS, "harebell_dispatcher")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM runs")
    finally:
        await connection.close()

    assert time is not None
    assert grants == []


async def test_intake_role_counts_dead_letters_and_reads_none(database_url: str) -> None:
    connection = await asyncpg.connect(as_role(database_url, "intake"))
    try:
        count = await connection.fetchval("SELECT count(*) FROM dead_letters WHERE tenant = 'a'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT payload FROM dead_letters")
    finally:
        await connection.close()

    assert count == 0
