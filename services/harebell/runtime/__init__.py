"""Process facilities that need neither RabbitMQ nor PostgreSQL.

* settings         `HAREBELL_*` variables, checked once at start
* database_url     the URL of PostgreSQL, for every reader
* yaml_document    one YAML or JSON document of an operator, with the line of each field
* policy_file      the tenant policies, read again when their file changes
* log_config       structured logs
* spans            spans of OpenTelemetry, and no work without them
* otel_sdk         the start of the SDK of OpenTelemetry
* failpoint        named steps at which a test can stop, delay or break a service
* clock            the time of the database, extrapolated with the monotonic clock
* secret_files     secrets of tenants, read from files and cached for seconds
* signing_keys     the signing keys of tenants, parsed once
* tzdata           the version of the time zone database
* event_wait       a bounded wait for an event
* retries          waits between tries, and retries until a server is available
* archive          the files of removed runs with their manifests
* computations     computations of scheduled times, in turn and bounded
* micro_batcher    many calls of one moment as one statement
* metrics          metrics of every service
"""
