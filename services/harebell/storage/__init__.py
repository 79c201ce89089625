"""PostgreSQL, for services: connections, the tables, the ledger's SQL, migrations."""
