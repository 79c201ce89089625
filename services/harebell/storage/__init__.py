"""Storage in PostgreSQL: connections, tables, the SQL of the ledger and migrations.

* migrations         the migrations of the schema
* migrate            the upgrade of a database and the logins of the service roles
* migration_settings the settings of that upgrade
* role_passwords     the passwords of the service roles and their verifiers
* restoration        the epoch that begins after a restoration
* tables             the tables, for cold reads
* engine             pools, error translation and pages
* runs               the SQL of runs, attempts, overlap slots and rate limits
* tenant_usage       the counts of what tenants did and of what was refused
* snapshot_holders   sessions whose snapshots prevent the cleanup of dead rows
* metrics            metrics of statements and republished tickets
"""
