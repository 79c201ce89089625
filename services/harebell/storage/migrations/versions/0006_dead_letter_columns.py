"""The time of the insertion and the origin of each dead letter, and the owner of unowned ones."""

from typing import Final

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS: Final = """
ALTER TABLE dead_letters ADD COLUMN kept_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN is_imported boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT dead_letters_tenant CHECK (tenant IS NOT NULL) NOT VALID
"""
# Services call the function too, because older services may store such dead letters during an
# upgrade. A moved dead letter has another failure group, because a group belongs to one tenant.
FUNCTION: Final = r"""
CREATE FUNCTION harebell_move_unowned_dead_letters() RETURNS integer
LANGUAGE sql SET search_path FROM CURRENT AS $$
WITH unowned AS (
    SELECT id, group_id, md5(group_id || '/harebell')::uuid AS new_group_id
    FROM dead_letters
    WHERE tenant IS NULL OR tenant = 'default' AND kind = 'message' AND NOT coalesce(
        payload->>'queue' ~ '^harebell\.(intake|queries|dlq)(\.|$)'
        AND payload->>'routing_key' ~ '^default\..', false)
    FOR UPDATE
), copied_groups AS (
    INSERT INTO failure_groups AS known (id, tenant, target, error_code, message, first_at, last_at,
        state, muted_until, note, changed_at, changed_by)
    SELECT old.new_group_id, 'harebell', target, error_code, message, first_at, last_at, state,
        muted_until, note, changed_at, changed_by
    FROM failure_groups
    JOIN (SELECT DISTINCT group_id, new_group_id FROM unowned) AS old ON old.group_id = id
    ON CONFLICT (id) DO UPDATE SET last_at = greatest(known.last_at, EXCLUDED.last_at)
), moved AS (
    UPDATE dead_letters AS letter SET tenant = 'harebell', group_id = new_group_id
    FROM unowned WHERE letter.id = unowned.id
    RETURNING letter.id
)
SELECT count(*)::integer FROM moved
$$
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    op.execute(FUNCTION)


def downgrade() -> None:
    op.execute("DROP FUNCTION harebell_move_unowned_dead_letters")
    op.execute(
        "ALTER TABLE dead_letters DROP COLUMN kept_at, DROP COLUMN is_imported, "
        "DROP CONSTRAINT dead_letters_tenant"
    )
