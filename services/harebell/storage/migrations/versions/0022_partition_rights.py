"""The rights on the partition of each day, for statements that name it."""

from importlib import import_module
from typing import Final

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

# PostgreSQL checks only the rights on the table that a statement names.
GRANT_PARTITION: Final = """
CREATE FUNCTION harebell_grant_partition(parent text, child text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF parent = 'runs' THEN
        EXECUTE format('GRANT SELECT, UPDATE ON %I TO harebell_executor', child);
        EXECUTE format('GRANT SELECT ON %I TO harebell_ticker', child);
    ELSE
        EXECUTE format('GRANT INSERT ON %I TO harebell_executor', child);
    END IF;
END $$
"""

CREATE_PARTITION: Final = """
CREATE FUNCTION harebell_create_partition(parent text, day date) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    child text := parent || '_' || to_char(day, 'YYYYMMDD');
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (fillfactor = %s)',
        child, parent, CASE parent WHEN 'runs' THEN 50 ELSE 100 END);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        parent, child, day, day + 1);
    PERFORM harebell_grant_partition(parent, child);
END $$
"""

ENSURE_PARTITIONS: Final = """
CREATE OR REPLACE FUNCTION harebell_ensure_partitions(first date, last date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    day date;
    parent text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('harebell_ensure_partitions'));
    FOR day IN SELECT generate_series(first, last, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['runs', 'attempts'] LOOP
            CONTINUE WHEN to_regclass(parent || '_' || to_char(day, 'YYYYMMDD')) IS NOT NULL;
            BEGIN
                PERFORM harebell_create_partition(parent, day);
                made := made + 1;
            EXCEPTION WHEN invalid_object_definition THEN NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$
"""

# Only the ticker reads a retired part, until the archive contains it.
RETIRE_DAY: Final = """
CREATE OR REPLACE FUNCTION harebell_retire_day(day date, needs_archive boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC'
SET lock_timeout = '100ms' AS $$
DECLARE
    suffix text := to_char(day, 'YYYYMMDD');
    parent text;
    child text;
    retired text;
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
        retired := 'retired_' || child || '_' || number;
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, child);
        EXECUTE format('ALTER TABLE %I RENAME TO %I', child, retired);
        EXECUTE format('REVOKE ALL ON %I FROM harebell_executor', retired);
        EXECUTE format('GRANT SELECT ON %I TO harebell_ticker', retired);
        IF is_first AND day < current_date - 30 THEN
            EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, parent || '_past');
            EXECUTE format(
                'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)',
                parent, parent || '_past', (day + 1)::timestamptz);
        ELSE
            PERFORM harebell_create_partition(parent, day);
        END IF;
    END LOOP;
    RETURN number;
END $$
"""

EACH_PARTITION: Final = """
DO $$
DECLARE
    entry record;
BEGIN
    FOR entry IN
        SELECT inhparent::regclass::text AS parent, relname AS child
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent IN ('runs'::regclass, 'attempts'::regclass) AND relname ~ '_[0-9]{{8}}$'
    LOOP
        {action};
    END LOOP;
END $$
"""
GRANT: Final = "PERFORM harebell_grant_partition(entry.parent, entry.child)"
REVOKE: Final = """
EXECUTE format('REVOKE ALL ON %I FROM harebell_executor, harebell_ticker', entry.child)
"""
HELPERS: Final = (
    "harebell_create_partition(text, date)",
    "harebell_grant_partition(text, text)",
)


def upgrade() -> None:
    for script in (GRANT_PARTITION, CREATE_PARTITION, ENSURE_PARTITIONS, RETIRE_DAY):
        op.execute(script)
    for function in HELPERS:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    op.execute(EACH_PARTITION.format(action=GRANT))


def downgrade() -> None:
    before = import_module("harebell.storage.migrations.versions.0014_retention")
    op.execute(before.ENSURE_PARTITIONS)
    op.execute(before.RETIRE_DAY.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
    for function in HELPERS:
        op.execute(f"DROP FUNCTION {function}")
    op.execute(EACH_PARTITION.format(action=REVOKE))
