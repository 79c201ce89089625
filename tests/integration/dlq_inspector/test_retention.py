"""Maintenance deletes dead letters above the age or the number, the oldest first."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment, dead_letter_id
from tests.rig.polling import until

from harebell.contract.accepted_commands import AcceptedCommand
from harebell.dlq_inspector.maintenance import apply_retention
from harebell.dlq_inspector.store import retention
from harebell.domain.tenant_policy import TenantPolicies

DAY: Final = timedelta(days=1)
INSERT_REPLAY_JOBS: Final = """
INSERT INTO replay_jobs (id, tenant, state, request, note, total, next_allowed_at, next_check_at,
                         created_at, finished_at)
SELECT gen_random_uuid(), 'acme', state, '{}', note, 0, now(), now() + next_check,
       now() - interval '100 days', now() - age
FROM (VALUES ('done', 'old', NULL, interval '91 days'),
             ('done', 'recent', NULL, interval '1 day'),
             ('aborted', 'unfinished', interval '1 day', interval '91 days'),
             ('paused', 'running', NULL, NULL)) AS job (state, note, next_check, age)
"""

INSERT_GROUPS: Final = """
INSERT INTO failure_groups (id, tenant, target, error_code, message, first_at, last_at, state)
SELECT gen_random_uuid(), tenant, 'task:a', 'failed', message, now(), now() - age, 'open'
FROM (VALUES ('acme', '0 hours', interval '1 minute'),
             ('acme', '0 hours, too', interval '2 minutes'),
             ('acme', '0 hours, three', interval '3 minutes'),
             ('acme', '2 hours', interval '2 hours'),
             ('acme', '5 hours', interval '5 hours'),
             ('umbrella', '5 hours', interval '5 hours')) AS failure (tenant, message, age)
"""


@pytest.mark.requirement("ASK-21")
async def test_old_dead_letter_is_deleted_with_every_row_that_refers_to_it(
    dlq: DlqEnvironment,
) -> None:
    now = datetime.now(UTC)
    old = await dlq.add_dead_run(1, error="long ago", dead_at=now - 89 * DAY)
    young = await dlq.add_dead_run(2, error="just now", dead_at=now)
    await dlq.wait_for_dead_letters(2)
    item = AcceptedCommand(index=0, request_id="r-1", body={"ids": [str(dead_letter_id(old))]})
    await dlq.send_items("dlq.replay_job.start", item)
    await dlq.next_response()
    await until(
        lambda: dlq.database.fetchval("SELECT taken FROM replay_jobs"),
        within=TIMEOUT,
        what="the job",
    )
    await dlq.database.execute(
        """UPDATE replay_jobs SET state = 'done', next_check_at = NULL,
           finished_at = now() - interval '91 days'"""
    )
    for assignment in (
        "dead_letters SET kept_at = kept_at - (now() - dead_at)",
        "failure_groups SET last_at = last_at",
    ):
        await dlq.database.execute(f"UPDATE {assignment} - interval '2 days'")

    async with dlq.open_pool() as pool:
        await apply_retention(pool, dlq.settings, TenantPolicies.unrestricted())

    assert [row.id for row in await dlq.wait_for_dead_letters(1)] == [dead_letter_id(young)]
    groups = [group async for group in dlq.acme.failure_groups(state="all")]
    assert [group.message for group in groups] == ["just now"]
    for table in ("replays", "replay_jobs", "replay_items"):
        assert await dlq.database.fetchval(f"SELECT count(*) FROM {table}") == 0  # noqa: S608  # names of tables


async def test_surplus_dead_letters_are_deleted_the_oldest_first(dlq: DlqEnvironment) -> None:
    dead = [await dlq.add_dead_run(number) for number in range(5)]
    await dlq.wait_for_dead_letters(5)

    await dlq.add_dead_run(tenant="umbrella")
    async with dlq.client_of("umbrella") as umbrella:
        [other] = await dlq.wait_for_dead_letters(1, umbrella)

        assert await retention.delete_surplus(dlq.database, 3) == 2
        assert await retention.delete_surplus(dlq.database, 3) == 0
        assert await retention.delete_surplus(dlq.database, 3, {"umbrella": 0}) == 1
        assert await retention.delete_surplus(dlq.database, 1, {"acme": 3}) == 0

    assert other.tenant == "umbrella"

    left = {row.id for row in await dlq.wait_for_dead_letters(3)}
    assert left == {dead_letter_id(each) for each in dead[2:]}


async def test_maintenance_deletes_the_dead_letters_above_the_maximum(dlq: DlqEnvironment) -> None:
    dead = [await dlq.add_dead_run(number) for number in range(4)]
    await dlq.wait_for_dead_letters(4)
    settings = dlq.settings.model_copy(update={"dead_letter_max_count": 2})

    async with dlq.open_pool() as pool:
        await apply_retention(pool, settings, TenantPolicies.unrestricted())

    left = {row.id for row in await dlq.wait_for_dead_letters(2)}
    assert left == {dead_letter_id(each) for each in dead[2:]}


@pytest.mark.requirement("P4", "P11")
async def test_policy_bounds_the_dead_letters_of_each_tenant(dlq: DlqEnvironment) -> None:
    document = {
        "defaults": {"quotas": {"dead_letters": 2}},
        "tenants": {"umbrella": {"quotas": {"dead_letters": 3}}},
    }
    async with dlq.client_of("umbrella") as umbrella, dlq.open_pool() as pool:
        for number in range(4):
            await dlq.add_dead_run(number)
            await dlq.add_dead_run(number, tenant="umbrella")
        await dlq.wait_for_dead_letters(4)
        await dlq.wait_for_dead_letters(4, umbrella)

        await apply_retention(pool, dlq.settings, TenantPolicies.parse(document))

        kept = [len(await dlq.wait_for_dead_letters(0, each)) for each in (dlq.acme, umbrella)]
    assert kept == [2, 3]


async def test_surplus_groups_without_dead_letters_are_deleted_the_oldest_first(
    dlq: DlqEnvironment,
) -> None:
    await dlq.add_dead_run(1, error="has a dead letter")
    await dlq.wait_for_dead_letters(1)
    await dlq.database.execute("UPDATE failure_groups SET last_at = now() - interval '9 hours'")
    await dlq.database.execute(INSERT_GROUPS)

    deleted = await retention.delete_surplus_groups(dlq.database, 2)

    left = await dlq.database.fetch("SELECT tenant, message FROM failure_groups")
    assert deleted == 2
    assert {(row["tenant"], row["message"]) for row in left} == {
        ("acme", "has a dead letter"),
        ("acme", "0 hours"),
        ("acme", "0 hours, too"),
        ("acme", "0 hours, three"),
        ("umbrella", "5 hours"),
    }
    assert await retention.delete_surplus_groups(dlq.database, 2) == 0


async def test_ended_replay_job_is_kept_while_its_runs_are_unfinished(dlq: DlqEnvironment) -> None:
    await dlq.database.execute(INSERT_REPLAY_JOBS)

    async with dlq.open_pool() as pool:
        await apply_retention(pool, dlq.settings, TenantPolicies.unrestricted())

    kept = await dlq.database.fetch("SELECT note FROM replay_jobs ORDER BY note")
    assert [row[0] for row in kept] == ["recent", "running", "unfinished"]
