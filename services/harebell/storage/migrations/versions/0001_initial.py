"""The complete schema: schedules, the ledger, dead letters, and one database role per service."""

from typing import Final

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SCHEDULE_TABLES: Final = """
CREATE TABLE schedules (
    id uuid NOT NULL,
    tenant text NOT NULL,
    key text,
    name text,
    owner text,
    class text NOT NULL,
    priority smallint NOT NULL,
    pool text NOT NULL,
    tags text[] NOT NULL,
    metadata jsonb NOT NULL,
    version integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    actor text,
    PRIMARY KEY (id)
);
CREATE TABLE schedule_versions (
    schedule_id uuid NOT NULL,
    version integer NOT NULL,
    definition json NOT NULL,
    run_spec json NOT NULL,
    fingerprint text NOT NULL,
    accepted_at timestamptz NOT NULL,
    effective_at timestamptz NOT NULL,
    anchor_at timestamptz,
    status text DEFAULT 'active' NOT NULL,
    status_reason text,
    actor text,
    note text,
    planned_from timestamptz,
    planned_until timestamptz,
    PRIMARY KEY (schedule_id, version)
);
CREATE TABLE schedule_state (
    schedule_id uuid NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    reason text,
    next_at timestamptz,
    changed_at timestamptz NOT NULL,
    planned_until timestamptz NOT NULL,
    dispatched integer NOT NULL,
    open_runs timestamptz[] NOT NULL,
    awaited_run timestamptz,
    consecutive_failures integer DEFAULT 0 NOT NULL,
    paused_until timestamptz,
    pending_version integer,
    pending_at timestamptz,
    skipped_times timestamptz[] DEFAULT '{}' NOT NULL,
    PRIMARY KEY (schedule_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE command_results (
    tenant text NOT NULL,
    request_id text NOT NULL,
    item_index integer NOT NULL,
    response json NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id, item_index)
);
CREATE TABLE bulk_operations (
    tenant text NOT NULL,
    id text NOT NULL,
    schedule_ids uuid[] NOT NULL,
    verb text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE tzdata_version (
    id serial NOT NULL,
    version text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE breakers (
    downstream text PRIMARY KEY,
    state text NOT NULL DEFAULT 'closed',
    since timestamptz,
    failed integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    forced text,
    forced_at timestamptz,
    forced_until timestamptz,
    note text,
    actor text
);
CREATE UNIQUE INDEX schedules_key ON schedules (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX schedules_page ON schedules (tenant, created_at, id);
CREATE INDEX schedules_tags ON schedules USING gin (tags);
CREATE INDEX schedules_owner ON schedules (tenant, owner) WHERE owner IS NOT NULL;
CREATE INDEX schedules_name ON schedules (tenant, name) WHERE name IS NOT NULL;
CREATE INDEX schedule_state_next ON schedule_state (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_state_awaited_run ON schedule_state (schedule_id)
WHERE awaited_run IS NOT NULL;
-- Most schedules are active or completed. This index omits them, so that a run does not write it.
CREATE INDEX schedule_state_halted ON schedule_state (state, schedule_id)
WHERE state NOT IN ('active', 'completed');
CREATE INDEX command_results_age ON command_results (created_at)
"""

# The keys begin with the time, which reduces the WAL by two thirds. One partial index serves both
# recovery statements, and a claim remains a heap-only update. The fillfactor of a partition of runs
# is 50, because a batch rewrites whole pages.
LEDGER_TABLES: Final = """
CREATE TABLE runs (
    scheduled_for timestamptz NOT NULL,
    schedule_id uuid NOT NULL,
    tenant text NOT NULL,
    version integer NOT NULL,
    override json,
    seq integer NOT NULL,
    replay_number integer NOT NULL DEFAULT 0,
    pool text NOT NULL,
    lane text NOT NULL,
    priority smallint NOT NULL,
    origin text,
    state text NOT NULL,
    reason text,
    due_at timestamptz NOT NULL,
    expires_at timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    lease_holder text,
    lease_until timestamptz,
    lease_seconds double precision,
    stop_requested_at timestamptz,
    staged_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    outcome text,
    range_until timestamptz,
    range_count integer,
    PRIMARY KEY (scheduled_for, schedule_id)
) PARTITION BY RANGE (scheduled_for);
CREATE TABLE attempts (
    scheduled_for timestamptz NOT NULL,
    schedule_id uuid NOT NULL,
    replay_number integer NOT NULL,
    number integer NOT NULL,
    lease_holder text,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    outcome text NOT NULL,
    error_code text,
    error text,
    http_status smallint,
    duration_ms double precision,
    result text,
    PRIMARY KEY (scheduled_for, schedule_id, replay_number, number)
) PARTITION BY RANGE (scheduled_for);
CREATE TABLE overlap_slots (
    schedule_id uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    role text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, scheduled_for)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE rate_limits (
    key text PRIMARY KEY,
    reservations timestamptz[] NOT NULL DEFAULT '{}',
    starts timestamptz[] NOT NULL DEFAULT '{}',
    expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_open ON runs (due_at) WHERE finished_at IS NULL;
CREATE INDEX runs_ranges ON runs (schedule_id, scheduled_for) WHERE range_until IS NOT NULL
"""

DEAD_LETTER_TABLES: Final = """
CREATE TABLE dead_letters (
    id uuid NOT NULL,
    tenant text,
    kind text NOT NULL,
    schedule_id uuid,
    scheduled_for timestamptz,
    replay_number integer,
    key text,
    reason text NOT NULL,
    error_code text,
    error text,
    attempts integer NOT NULL,
    dead_at timestamptz NOT NULL,
    state text NOT NULL,
    payload jsonb NOT NULL,
    body bytea,
    root_id uuid,
    discarded_at timestamptz,
    discarded_by text,
    discard_note text,
    target json,
    edited_from uuid,
    edited_at timestamptz,
    edited_by text,
    edit_note text,
    group_id uuid NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE failure_groups (
    id uuid NOT NULL,
    tenant text NOT NULL,
    target text NOT NULL,
    error_code text NOT NULL,
    message text NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    state text NOT NULL,
    muted_until timestamptz,
    note text,
    changed_at timestamptz,
    changed_by text,
    PRIMARY KEY (id)
);
CREATE TABLE replays (
    dead_letter_id uuid NOT NULL,
    replay_number integer NOT NULL,
    actor text,
    note text,
    replayed_at timestamptz NOT NULL,
    PRIMARY KEY (dead_letter_id)
);
CREATE TABLE replay_jobs (
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    reason text,
    request jsonb NOT NULL,
    actor text,
    note text,
    canary integer,
    rate double precision,
    abort_on_failure_ratio double precision,
    pool text,
    total integer NOT NULL,
    taken integer DEFAULT 0 NOT NULL,
    replayed integer DEFAULT 0 NOT NULL,
    succeeded integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    next_allowed_at timestamptz NOT NULL,
    next_check_at timestamptz,
    created_at timestamptz NOT NULL,
    changed_at timestamptz,
    changed_by text,
    finished_at timestamptz,
    progressed_at timestamptz,
    PRIMARY KEY (id)
) WITH (fillfactor = 50);
CREATE TABLE replay_items (
    job_id uuid NOT NULL,
    position integer NOT NULL,
    dead_letter_id uuid NOT NULL,
    status text DEFAULT 'waiting' NOT NULL,
    outcome text,
    PRIMARY KEY (job_id, position)
);
CREATE TABLE alerts (
    tenant text NOT NULL,
    verb text NOT NULL,
    subject text NOT NULL,
    notified_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, verb, subject)
);
CREATE INDEX dead_letters_page ON dead_letters (tenant, state, dead_at DESC, id);
CREATE INDEX dead_letters_run ON dead_letters (schedule_id, scheduled_for);
CREATE INDEX dead_letters_group ON dead_letters (group_id, state, dead_at DESC, id);
CREATE INDEX dead_letters_age ON dead_letters (dead_at);
CREATE INDEX failure_groups_page ON failure_groups (tenant, last_at DESC, id);
CREATE INDEX replay_jobs_next_check ON replay_jobs (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX replay_jobs_page ON replay_jobs (tenant, created_at DESC, id);
CREATE INDEX replay_items_unfinished ON replay_items (job_id)
WHERE status = 'replayed' AND outcome IS NULL
"""

# CREATE TABLE and ATTACH PARTITION do not lock the parent table against reads and writes.
ENSURE_PARTITIONS: Final = """
CREATE FUNCTION harebell_ensure_partitions(first date, last date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    day date;
    parent text;
    child text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('harebell_ensure_partitions'));
    FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(child) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (fillfactor = %s)',
                child, parent, CASE parent WHEN 'runs' THEN 50 ELSE 100 END);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                parent, child, day, day + 1);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$
"""

ROLES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector", "auditor")
# Roles belong to the whole cluster, so another database of Harebell may have created them.
CREATE_ROLE: Final = """
DO $$ BEGIN
    CREATE ROLE harebell_{role};
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
GRANTS: Final = """
GRANT SELECT ON schedules, schedule_versions, schedule_state, runs, attempts, breakers
TO harebell_intake;
GRANT SELECT, INSERT, UPDATE ON schedules, schedule_versions, schedule_state, tzdata_version, runs
TO harebell_ticker;
GRANT SELECT, INSERT, DELETE ON command_results, bulk_operations TO harebell_ticker;
GRANT SELECT, INSERT ON attempts TO harebell_ticker;
GRANT SELECT, DELETE ON rate_limits TO harebell_ticker;
GRANT SELECT, INSERT, UPDATE, DELETE ON breakers, overlap_slots TO harebell_ticker;
GRANT EXECUTE ON FUNCTION harebell_ensure_partitions TO harebell_ticker;
GRANT SELECT, UPDATE ON runs TO harebell_executor;
GRANT SELECT, INSERT ON attempts TO harebell_executor;
GRANT SELECT, INSERT, UPDATE ON rate_limits TO harebell_executor;
GRANT SELECT, INSERT, UPDATE, DELETE ON overlap_slots TO harebell_executor;
GRANT SELECT ON schedule_versions TO harebell_executor;
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters, replays, replay_jobs, replay_items,
    failure_groups, alerts
TO harebell_dlq_inspector;
GRANT SELECT, UPDATE ON runs TO harebell_dlq_inspector;
GRANT SELECT ON attempts, schedules, schedule_versions TO harebell_dlq_inspector;
GRANT SELECT, UPDATE (open_runs) ON schedule_state TO harebell_dlq_inspector;
GRANT SELECT ON schedules, schedule_versions, schedule_state, runs, attempts TO harebell_auditor
"""


def upgrade() -> None:
    for script in (SCHEDULE_TABLES, LEDGER_TABLES, DEAD_LETTER_TABLES):
        _execute_each(script)
    op.execute(ENSURE_PARTITIONS)
    op.execute("REVOKE EXECUTE ON FUNCTION harebell_ensure_partitions FROM PUBLIC")
    for role in ROLES:
        op.execute(CREATE_ROLE.format(role=role))
    _execute_each(GRANTS)


def _execute_each(script: str) -> None:
    for statement in script.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The initial migration has no downgrade. Drop the database instead.")
