"""The Alembic environment, which runs on the connection of `migrate.py`."""

from alembic import context

from harebell.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
