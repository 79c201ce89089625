"""The runs that have the slots of the concurrency label for which a run waits."""

from typing import Final

from sqlalchemy import text

from harebell.contract.ids import RunKey
from harebell.intake.queries.store import PREFER_INDEXES, IntakeStore
from harebell.intake.queries.views import Row
from harebell.intake.queries.why import MAX_NAMED_HOLDERS, OccupiedLabel

MAX_DUE_RUNS: Final = 10_000  # unfinished runs that the search reads, those due first first

# Intake has no right to read `label_slots`. A run has a slot exactly while it is running, and its
# version names its label. A line can contain many runs, so the search for running runs has a bound.
_HOLDERS: Final = text("""
WITH asking AS MATERIALIZED (
    SELECT run_spec -> 'concurrency' ->> 'label' AS label,
           (run_spec -> 'concurrency' ->> 'limit')::int AS run_limit
    FROM schedule_versions WHERE schedule_id = :schedule_id AND version = :version
), due AS MATERIALIZED (
    SELECT scheduled_for, schedule_id, tenant, version, state, started_at
    FROM runs WHERE finished_at IS NULL AND due_at <= now()
    ORDER BY due_at LIMIT :max_due_runs
), holders AS (
    SELECT due.scheduled_for, due.schedule_id
    FROM due
    JOIN schedule_versions AS v ON v.schedule_id = due.schedule_id AND v.version = due.version
    WHERE due.state = 'running' AND due.tenant = :tenant
      AND v.run_spec -> 'concurrency' ->> 'label' = (SELECT label FROM asking)
    ORDER BY due.started_at, due.scheduled_for, due.schedule_id LIMIT :max_holders
)
SELECT asking.label, asking.run_limit, holders.scheduled_for, holders.schedule_id
FROM asking LEFT JOIN holders ON true
WHERE asking.label IS NOT NULL
""")


async def find_label_holders(store: IntakeStore, row: Row) -> OccupiedLabel | None:
    """Return the label of a run and the runs that have its slots, or None without a label.

    The caller has checked the tenant of `row`. The result contains at most one run more than an
    explanation names, so that the explanation states that further runs have slots.
    """
    statement = _HOLDERS.bindparams(
        tenant=row["tenant"],
        schedule_id=row["schedule_id"],
        version=row["version"],
        max_due_runs=MAX_DUE_RUNS,
        max_holders=MAX_NAMED_HOLDERS + 1,
    )
    found = await store.read(statement, PREFER_INDEXES)
    if not found:
        return None
    holders = [
        RunKey(each["scheduled_for"], each["schedule_id"])
        for each in found
        if each["schedule_id"] is not None
    ]
    return OccupiedLabel(
        name=found[0]["label"], limit=found[0]["run_limit"], holders=tuple(holders)
    )
