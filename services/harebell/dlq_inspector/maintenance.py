"""Maintenance: the retention of dead letters, replay jobs and failure groups."""

import asyncio
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import Transient
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.store import retention
from harebell.domain.tenant_policy import TenantPolicies, TenantPolicy
from harebell.runtime.policy_file import PolicyKeeper
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage.engine import translate_db_errors

MAINTENANCE_INTERVAL: Final = 60.0  # seconds
MAX_BATCHES: Final = 200  # of each rule at a time, which is 100,000 dead letters per minute
AGE: Final = "age"
SIZE: Final = "size"

log = structlog.get_logger()


async def run_maintenance(
    pool: asyncpg.Pool, settings: DlqInspectorSettings, policies: PolicyKeeper
) -> None:
    """Apply the retention regularly until the task is cancelled."""
    for reason in (AGE, SIZE):
        metrics.DEAD_LETTERS_DELETED.labels(reason)  # a rate ignores the first value of a series
    has_moved = False
    while True:
        has_moved = has_moved or await _has_moved_unowned(pool)
        try:
            await apply_retention(pool, settings, policies.current)
        except Transient as error:
            log.warning("dead letter maintenance failed", reason=error.reason)
        await asyncio.sleep(MAINTENANCE_INTERVAL)


async def _has_moved_unowned(pool: asyncpg.Pool) -> bool:
    """Move the dead letters that name no tenant to the operators. Return whether this succeeded.

    The last dlq_inspector of an upgrade starts after the end of the last older one.
    """
    try:
        with translate_db_errors():
            async with pool.acquire() as connection:
                moved = await retention.move_unowned(connection)
    except Transient as error:
        log.warning("dead letters not moved to the operators", reason=error.reason)
        return False
    if moved:
        log.warning("dead letters moved to the operators", count=moved)
    return True


async def apply_retention(
    pool: asyncpg.Pool, settings: DlqInspectorSettings, policies: TenantPolicies
) -> None:
    """Delete the old and the surplus dead letters, then ended replay jobs and empty groups."""
    max_age = settings.dead_letter_retention
    max_count, max_counts = _max_counts(settings.dead_letter_max_count, policies)
    with translate_db_errors():
        async with pool.acquire() as connection:
            for _ in range(MAX_BATCHES):
                old = await retention.delete_old(connection, max_age)
                surplus = await retention.delete_surplus(connection, max_count, max_counts)
                if not old + surplus:
                    break
                metrics.DEAD_LETTERS_DELETED.labels(AGE).inc(old)
                metrics.DEAD_LETTERS_DELETED.labels(SIZE).inc(surplus)
                log.warning("dead letters deleted", old=old, surplus=surplus)
            await retention.delete_ended_jobs_and_empty_groups(connection, max_age)


def _max_counts(max_count: int, policies: TenantPolicies) -> tuple[int, dict[str, int]]:
    """Return the number of dead letters that a tenant may keep, and other numbers by tenant."""

    def of(policy: TenantPolicy) -> int:
        quota = policy.quotas.dead_letters
        return max_count if quota is None else min(max_count, quota)

    by_tenant = {tenant: of(policy) for tenant, policy in policies.tenants.items()}
    return of(policies.defaults), by_tenant
