"""The answer to `tenant.usage`: the quotas of tenants, their use and what was refused."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import TextClause, text

from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.queries import TenantUsage
from harebell.contract.responses import Page
from harebell.contract.views import QuotaUsage, RefusalCount, TenantUsageView
from harebell.domain.tenant_policy import Quotas, TenantPolicies
from harebell.domain.usage_counts import ACCEPTED, BACKFILL_RUNS, PUTS
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.views import Row

MAX_COUNTED: Final = 100_000  # schedules or dead letters of one tenant, or runs of all tenants
RUN_SECONDS: Final = 60  # of the runs whose rate the answer contains
QUOTAS: Final = tuple(name for name in Quotas.model_fields if name != "retry_min_wait")

# Each statement reads one entry of an index for each tenant, and not every row.
_TENANTS: Final = text("""
WITH RECURSIVE owners AS (
    (SELECT tenant FROM schedules WHERE tenant > :after ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT next.tenant FROM schedules AS next WHERE next.tenant > owners.tenant
            ORDER BY next.tenant LIMIT 1)
    FROM owners WHERE owners.tenant IS NOT NULL
), keepers AS (
    (SELECT tenant FROM dead_letters WHERE tenant > :after ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT next.tenant FROM dead_letters AS next WHERE next.tenant > keepers.tenant
            ORDER BY next.tenant LIMIT 1)
    FROM keepers WHERE keepers.tenant IS NOT NULL
), counted AS (
    SELECT DISTINCT tenant FROM tenant_usage
    WHERE tenant > :after AND minute > now() - interval '1 hour'
)
(SELECT tenant FROM owners WHERE tenant IS NOT NULL LIMIT :number)
UNION (SELECT tenant FROM keepers WHERE tenant IS NOT NULL LIMIT :number)
UNION (SELECT tenant FROM counted ORDER BY tenant LIMIT :number)
ORDER BY tenant LIMIT :number
""")
_STORED: Final = text("""
SELECT asked.tenant,
       (SELECT count(*) FROM (
            SELECT FROM schedules JOIN schedule_state ON schedule_state.schedule_id = schedules.id
            WHERE schedules.tenant = asked.tenant
              AND schedule_state.state NOT IN ('completed', 'cancelled', 'deleted')
            LIMIT :max_counted) AS live) AS schedules,
       (SELECT count(*) FROM (
            SELECT FROM dead_letters WHERE dead_letters.tenant = asked.tenant
            LIMIT :max_counted) AS kept) AS dead_letters
FROM unnest(CAST(:tenants AS text[])) AS asked (tenant)
""")
_RUNS: Final = text("""
SELECT tenant, count(*) AS number FROM (
    SELECT tenant FROM runs
    WHERE scheduled_for > now() - make_interval(secs => :seconds) AND scheduled_for <= now()
      AND state <> 'skipped'
    LIMIT :max_counted) AS due
WHERE tenant = ANY (CAST(:tenants AS text[])) GROUP BY tenant
""")
_RUNNING: Final = text("""
SELECT tenant, count(*) AS number FROM (
    SELECT tenant, state FROM runs WHERE finished_at IS NULL AND due_at <= now()
    ORDER BY due_at LIMIT :max_counted) AS open_runs
WHERE state = 'running' AND tenant = ANY (CAST(:tenants AS text[])) GROUP BY tenant
""")
_COUNTS: Final = text("""
SELECT tenant, rule, code, sum(number)::float8 AS number,
       (sum(number) FILTER (WHERE minute >= recent.since)
            / extract(epoch FROM now() - recent.since))::float8 AS per_second
FROM tenant_usage, (SELECT date_trunc('minute', now()) - interval '1 minute' AS since) AS recent
WHERE minute > now() - interval '1 hour' AND tenant = ANY (CAST(:tenants AS text[]))
GROUP BY tenant, rule, code, recent.since ORDER BY tenant, code, rule
""")


async def usage_page(
    store: IntakeStore, tenant: str, query: TenantUsage, *, policies: TenantPolicies
) -> Page[TenantUsageView]:
    """Return the use of the tenant, or of a page of all tenants for the operations tenant."""
    names, has_more = [tenant], False
    if tenant == OPERATIONS_TENANT:
        names = await _tenants(store, query, policies.tenants)
        names, has_more = names[: query.limit], len(names) > query.limit
    stored = {row["tenant"]: row for row in await _rows(store, _STORED, names)}
    due = _numbers(await _rows(store, _RUNS, names, seconds=RUN_SECONDS))
    running = _numbers(await _rows(store, _RUNNING, names))
    counts = await _rows(store, _COUNTS, names)
    items = [
        tenant_usage(
            name,
            policies.of(name).quotas,
            used={
                "schedules": stored[name]["schedules"],
                "dead_letters": stored[name]["dead_letters"],
                "runs_per_second": due.get(name, 0) / RUN_SECONDS,
                "concurrent_runs": running.get(name, 0),
            },
            counts=[row for row in counts if row["tenant"] == name],
        )
        for name in names
    ]
    return Page[TenantUsageView](items=items, next=names[-1] if has_more else None)


def tenant_usage(
    tenant: str, quotas: Quotas, *, used: Mapping[str, float], counts: Sequence[Row]
) -> TenantUsageView:
    """Return the view of one tenant. `counts` are its rows of the last hour, by rule and code."""
    accepted = {row["rule"]: row for row in counts if row["code"] == ACCEPTED}
    use = {PUTS: 0.0, BACKFILL_RUNS: 0.0, **used}
    if PUTS in accepted:
        use[PUTS] = accepted[PUTS]["per_second"] or 0.0
    if BACKFILL_RUNS in accepted:
        use[BACKFILL_RUNS] = accepted[BACKFILL_RUNS]["number"]
    refused = [row for row in counts if row["code"] != ACCEPTED]
    return TenantUsageView(
        tenant=tenant,
        quotas=[
            QuotaUsage(
                quota=name,
                limit=getattr(quotas, name),
                used=None if name not in use else round(use[name], 3),
                is_at_least=use.get(name, 0) >= MAX_COUNTED,
                refused=int(sum(row["number"] for row in refused if row["rule"] == name)),
            )
            for name in QUOTAS
        ],
        refusals=[
            RefusalCount(code=row["code"], rule=row["rule"], refused=int(row["number"]))
            for row in refused
            if row["rule"] not in QUOTAS
        ],
    )


async def _tenants(store: IntakeStore, query: TenantUsage, known: Iterable[str]) -> list[str]:
    """Return one page of tenants and one further tenant, of the document or with rows."""
    after, number = query.after or "", query.limit + 1
    rows = await store.read(_TENANTS.bindparams(after=after, number=number))
    found = {row["tenant"] for row in rows} | {name for name in known if name > after}
    return sorted(found)[:number]


async def _rows(
    store: IntakeStore, statement: TextClause, tenants: Sequence[str], **parameters: object
) -> list[Row]:
    if "max_counted" in statement.text:
        parameters["max_counted"] = MAX_COUNTED
    return await store.read(statement.bindparams(tenants=list(tenants), **parameters))


def _numbers(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return {row["tenant"]: row["number"] for row in rows}
