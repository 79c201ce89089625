"""Schedules, the ledger, dead letters; a role for each service with just its grants."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, and never changed: `tables.py` says what they are today, after all migrations.
_TABLES = """
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
    work json NOT NULL,
    fingerprint text NOT NULL,
    accepted_at timestamptz NOT NULL,
    effective_at timestamptz NOT NULL,
    anchored_at timestamptz,
    fate text DEFAULT 'commenced' NOT NULL,
    fate_reason text,
    actor text,
    note text,
    PRIMARY KEY (schedule_id, version)
);
CREATE TABLE schedule_state (
    schedule_id uuid NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    reason text,
    next_at timestamptz,
    changed_at timestamptz NOT NULL,
    planned_to timestamptz NOT NULL,
    dispatched integer NOT NULL,
    open_runs timestamptz[] NOT NULL,
    awaiting timestamptz,
    failures integer DEFAULT 0 NOT NULL,
    paused_until timestamptz,
    pending_version integer,
    pending_at timestamptz,
    skips timestamptz[] DEFAULT '{}' NOT NULL,
    PRIMARY KEY (schedule_id)
);
CREATE TABLE commands (
    tenant text NOT NULL,
    request_id text NOT NULL,
    item integer NOT NULL,
    answer json NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id, item)
);
CREATE TABLE receipts (
    tenant text NOT NULL,
    receipt text NOT NULL,
    schedule_ids uuid[] NOT NULL,
    verb text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, receipt)
);
CREATE TABLE zone_data (
    id serial NOT NULL,
    release text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE dead_letters (
    id uuid NOT NULL,
    tenant text,
    kind text NOT NULL,
    schedule_id uuid,
    scheduled_for timestamptz,
    series integer,
    key text,
    reason text NOT NULL,
    error_code text,
    error text,
    attempts integer NOT NULL,
    dead_at timestamptz NOT NULL,
    state text NOT NULL,
    story jsonb NOT NULL,
    body bytea,
    first_id uuid,
    PRIMARY KEY (id)
);
CREATE TABLE replays (
    dead_letter_id uuid NOT NULL,
    series integer NOT NULL,
    actor text,
    note text,
    replayed_at timestamptz NOT NULL,
    PRIMARY KEY (dead_letter_id)
);
"""
_INDEXES = """
CREATE UNIQUE INDEX schedules_key ON schedules (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX schedules_page ON schedules (tenant, created_at, id);
CREATE INDEX schedules_tags ON schedules USING gin (tags);
CREATE INDEX schedule_state_next ON schedule_state (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_state_awaiting ON schedule_state (schedule_id) WHERE awaiting IS NOT NULL;
CREATE INDEX schedules_owner ON schedules (tenant, owner) WHERE owner IS NOT NULL;
CREATE INDEX commands_age ON commands (created_at);
CREATE INDEX dead_letters_page ON dead_letters (tenant, state, dead_at DESC, id);
CREATE INDEX dead_letters_run ON dead_letters (schedule_id, scheduled_for);
ALTER TABLE schedule_state SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0);
"""
# Time first in the keys: a third of the WAL. One partial index serves both sweeps and leaves
# claims heap-only; fillfactor 50 because a batch rewrites whole pages.
_LEDGER = """
CREATE TABLE runs (
    scheduled_for timestamptz NOT NULL,
    schedule_id uuid NOT NULL,
    tenant text NOT NULL,
    version integer NOT NULL,
    override json,
    seq integer NOT NULL,
    series integer NOT NULL DEFAULT 1,
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
CREATE INDEX runs_open ON runs (due_at) WHERE finished_at IS NULL;
CREATE INDEX runs_ranges ON runs (schedule_id, scheduled_for) WHERE range_until IS NOT NULL;

CREATE TABLE attempts (
    scheduled_for timestamptz NOT NULL,
    schedule_id uuid NOT NULL,
    series integer NOT NULL,
    number integer NOT NULL,
    worker text,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    outcome text NOT NULL,
    error_code text,
    error text,
    http_status smallint,
    duration_ms double precision,
    result text,
    PRIMARY KEY (scheduled_for, schedule_id, series, number)
) PARTITION BY RANGE (scheduled_for);
"""
# CREATE then ATTACH: the parent is never locked against reads and writes.
_PARTITIONS = """
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
_ROLES = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector")

_ROLE = """
DO $$ BEGIN
    CREATE ROLE harebell_{role};
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
_GRANTS = """
GRANT SELECT ON schedules, schedule_versions, schedule_state, runs, attempts TO harebell_intake;
GRANT SELECT, INSERT, UPDATE ON schedules, schedule_versions, schedule_state TO harebell_ticker;
GRANT SELECT, INSERT, UPDATE ON zone_data TO harebell_ticker;
GRANT SELECT, INSERT, DELETE ON commands, receipts TO harebell_ticker;
GRANT SELECT, INSERT, UPDATE ON runs TO harebell_ticker;
GRANT SELECT, INSERT ON attempts TO harebell_ticker;
GRANT EXECUTE ON FUNCTION harebell_ensure_partitions TO harebell_ticker;
GRANT SELECT, UPDATE ON runs TO harebell_executor;
GRANT SELECT, INSERT ON attempts TO harebell_executor;
GRANT SELECT, INSERT, UPDATE ON dead_letters, replays TO harebell_dlq_inspector;
GRANT SELECT, UPDATE ON runs TO harebell_dlq_inspector;
GRANT SELECT ON attempts, schedules, schedule_versions TO harebell_dlq_inspector;
"""


def upgrade() -> None:
    for script in (_TABLES, _INDEXES, _LEDGER):
        for statement in script.split(";\n"):
            if statement.strip():
                op.execute(statement)
    op.execute(_PARTITIONS)
    op.execute("REVOKE EXECUTE ON FUNCTION harebell_ensure_partitions FROM PUBLIC")
    for role in _ROLES:
        op.execute(_ROLE.format(role=role))
    for grant in _GRANTS.strip().split(";\n"):
        op.execute(grant)


def downgrade() -> None:
    raise NotImplementedError("the first migration: drop the database instead")
