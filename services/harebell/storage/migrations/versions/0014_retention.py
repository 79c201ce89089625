"""The retention of the history: partitions that leave the ledger, their archive and their marks."""

from typing import Final

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# The ticker raises the marks before it removes the first row. `last_runs` contains the last run of
# each schedule whose row is removed.
TABLES: Final = """
CREATE TABLE history_marks (
    tenant text PRIMARY KEY,
    removed_until timestamptz NOT NULL,
    retention interval NOT NULL
);
CREATE TABLE last_runs (
    schedule_id uuid PRIMARY KEY,
    scheduled_for timestamptz NOT NULL,
    state text NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz
);
CREATE TABLE examined_days (
    day date PRIMARY KEY,
    scope text NOT NULL,
    examined_at timestamptz NOT NULL,
    is_final boolean NOT NULL
);
CREATE TABLE archive_parts (
    day date NOT NULL,
    part integer NOT NULL,
    needs_archive boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    archived_at timestamptz,
    removed_at timestamptz,
    runs bigint,
    attempts bigint,
    bytes bigint,
    PRIMARY KEY (day, part)
);
CREATE TABLE maintenance_leases (
    task text PRIMARY KEY,
    holder text NOT NULL,
    lease_until timestamptz NOT NULL,
    finished_at timestamptz
);
GRANT SELECT, INSERT, UPDATE ON history_marks, maintenance_leases TO harebell_ticker;
GRANT SELECT, INSERT, UPDATE, DELETE ON last_runs, examined_days, archive_parts TO harebell_ticker;
GRANT DELETE ON runs, attempts, schedules, schedule_state, schedule_versions TO harebell_ticker;
GRANT SELECT (tenant, id, schedule_id, scheduled_for, state) ON dead_letters TO harebell_ticker;
GRANT SELECT (dead_letter_id, status, outcome) ON replay_items TO harebell_ticker;
GRANT SELECT ON history_marks, last_runs TO harebell_intake;
GRANT SELECT ON history_marks TO harebell_auditor
"""

# The partition of all earlier times keeps the insertion of an old time possible, such as the range
# of skipped times of a long pause.
PAST_PARTITIONS: Final = """
DO $$
DECLARE
    parent text;
    first text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
        SELECT min(child.relname) INTO first FROM pg_inherits
        JOIN pg_class AS child ON child.oid = inhrelid
        WHERE inhparent = parent::regclass AND child.relname ~ '_[0-9]{8}$';
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', parent || '_past', parent);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)',
            parent, parent || '_past',
            coalesce(to_date(right(first, 8), 'YYYYMMDD'), current_date - 30)::timestamp
                AT TIME ZONE 'UTC');
    END LOOP;
END $$
"""

# A day that the partition of earlier times contains needs no partition.
ENSURE_PARTITIONS: Final = """
CREATE OR REPLACE FUNCTION harebell_ensure_partitions(first date, last date) RETURNS integer
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
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (fillfactor = %s)',
                    child, parent, CASE parent WHEN 'runs' THEN 50 ELSE 100 END);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, child, day, day + 1);
                made := made + 1;
            EXCEPTION WHEN invalid_object_definition THEN NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$
"""

# The locks wait for at most 100 ms, because every statement of the ledger waits behind them.
RETIRE_DAY: Final = """
CREATE FUNCTION harebell_retire_day(day date, needs_archive boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC'
SET lock_timeout = '100ms' AS $$
DECLARE
    suffix text := to_char(day, 'YYYYMMDD');
    parent text;
    child text;
    number integer;
    is_needed boolean;
    is_first boolean;
BEGIN
    IF day >= current_date THEN
        RAISE EXCEPTION 'The day must be in the past, not %.', day;
    END IF;
    IF to_regclass('runs_' || suffix) IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('harebell_ensure_partitions'));
    LOCK TABLE ONLY runs, ONLY attempts IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE finished_at IS NULL)', 'runs_' || suffix)
    INTO is_needed;
    IF is_needed OR EXISTS (
        SELECT FROM dead_letters WHERE state = 'open'
            AND scheduled_for >= day::timestamptz AND scheduled_for < (day + 1)::timestamptz
    ) THEN
        RETURN NULL;
    END IF;
    SELECT coalesce(max(part), 0) + 1 INTO number FROM archive_parts
    WHERE archive_parts.day = harebell_retire_day.day;
    INSERT INTO archive_parts (day, part, needs_archive) VALUES (day, number, needs_archive);
    SELECT min(relname) = 'runs_' || suffix INTO is_first FROM pg_inherits
    JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'runs'::regclass AND relname ~ '_[0-9]{8}$';
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
        child := parent || '_' || suffix;
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, child);
        EXECUTE format('ALTER TABLE %I RENAME TO %I', child,
            'retired_' || child || '_' || number);
        EXECUTE format('GRANT SELECT ON %I TO harebell_ticker',
            'retired_' || child || '_' || number);
        IF is_first AND day < current_date - 30 THEN
            EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, parent || '_past');
            EXECUTE format(
                'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)',
                parent, parent || '_past', (day + 1)::timestamptz);
        ELSE
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (fillfactor = %s)',
                child, parent, CASE parent WHEN 'runs' THEN 50 ELSE 100 END);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                parent, child, day, day + 1);
        END IF;
    END LOOP;
    RETURN number;
END $$
"""

# A part contains removed rows until the archive contains them.
OPEN_PART: Final = """
CREATE FUNCTION harebell_open_part(day date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    parent text;
    number integer;
    retired text;
BEGIN
    SELECT coalesce(max(part), 0) + 1 INTO number FROM archive_parts
    WHERE archive_parts.day = harebell_open_part.day;
    INSERT INTO archive_parts (day, part, needs_archive) VALUES (day, number, true);
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
        retired := 'retired_' || parent || '_' || to_char(day, 'YYYYMMDD') || '_' || number;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', retired, parent);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO harebell_ticker', retired);
    END LOOP;
    RETURN number;
END $$
"""

# The counts are those of the archive, so a row that the archive lacks prevents the removal.
DROP_PART: Final = """
CREATE FUNCTION harebell_drop_part(day date, number integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    entry archive_parts%ROWTYPE;
    parent text;
    retired text;
    archived bigint;
    present bigint;
BEGIN
    SELECT * INTO entry FROM archive_parts
    WHERE archive_parts.day = harebell_drop_part.day AND part = number FOR UPDATE;
    IF entry.needs_archive IS NULL OR entry.removed_at IS NOT NULL THEN
        RETURN;
    END IF;
    IF entry.needs_archive AND entry.archived_at IS NULL THEN
        RAISE EXCEPTION 'The part % of % must be in the archive before its removal.', number, day;
    END IF;
    FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
        retired := 'retired_' || parent || '_' || to_char(day, 'YYYYMMDD') || '_' || number;
        IF entry.needs_archive THEN
            archived := CASE parent WHEN 'runs' THEN entry.runs ELSE entry.attempts END;
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', retired);
            EXECUTE format('SELECT count(*) FROM %I', retired) INTO present;
            IF present IS DISTINCT FROM archived THEN
                RAISE EXCEPTION 'The archive must contain % rows of %, not %.',
                    present, retired, archived;
            END IF;
        END IF;
        EXECUTE format('DROP TABLE %I', retired);
    END LOOP;
    IF entry.needs_archive THEN
        UPDATE archive_parts SET removed_at = now()
        WHERE archive_parts.day = harebell_drop_part.day AND part = number;
    ELSE
        DELETE FROM archive_parts
        WHERE archive_parts.day = harebell_drop_part.day AND part = number;
    END IF;
END $$
"""
FUNCTIONS: Final = (
    "harebell_retire_day(date, boolean)",
    "harebell_open_part(date)",
    "harebell_drop_part(date, integer)",
)


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        op.execute(statement)
    for script in (PAST_PARTITIONS, ENSURE_PARTITIONS, RETIRE_DAY, OPEN_PART, DROP_PART):
        op.execute(script)
    for function in FUNCTIONS:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {function} TO harebell_ticker")


def downgrade() -> None:
    for function in FUNCTIONS:
        op.execute(f"DROP FUNCTION {function}")
    op.execute(
        "DROP TABLE runs_past, attempts_past, history_marks, last_runs, examined_days, "
        "archive_parts, maintenance_leases"
    )
