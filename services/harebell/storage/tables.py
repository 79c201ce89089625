"""The tables of the migrations as SQLAlchemy Core values, for cold reads."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

metadata = MetaData()
_instant = DateTime(timezone=True)

schedules = Table(  # rarely written, which permits several indexes
    "schedules",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("key", Text),
    Column("name", Text),
    Column("owner", Text),
    Column("class", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("pool", Text, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    Column("metadata", JSONB, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", _instant, nullable=False),
    Column("updated_at", _instant, nullable=False),
    Column("actor", Text),
)

schedule_versions = Table(  # immutable, so that a ticket can be rebuilt from its version
    "schedule_versions",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("definition", JSON, nullable=False),  # of the command, without defaults
    Column("run_spec", JSON, nullable=False),  # the content of its tickets
    Column("fingerprint", Text, nullable=False),
    Column("accepted_at", _instant, nullable=False),
    Column("effective_at", _instant, nullable=False),
    Column("anchor_at", _instant),  # the origin of relative times; null: effective_at
    # pending, active, superseded, failed, missed
    Column("status", Text, nullable=False, server_default="active"),
    Column("status_reason", Text),
    Column("actor", Text),
    Column("note", Text),
    Column("planned_from", _instant),  # the start of its times; null: effective_at
    Column("planned_until", _instant),  # its last planned time when another version replaced it
)

schedule_state = Table(  # narrow, because each run writes it
    "schedule_state",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),  # of the state errored, or the note of a pause or cancel
    Column("next_at", _instant),  # the next planning; null: after a command or an outcome only
    Column("changed_at", _instant, nullable=False),  # acceptance of the last applied command
    Column(
        "planned_until", _instant, nullable=False
    ),  # all scheduled times up to this one are planned
    Column("dispatched", Integer, nullable=False),  # runs that count for `times`
    Column("open_runs", ARRAY(_instant), nullable=False),  # staged and not known to have ended
    Column("awaited_run", _instant),  # planning continues after the end of this run
    Column("consecutive_failures", Integer, nullable=False, server_default="0"),
    Column("paused_until", _instant),
    Column("pending_version", Integer),
    Column("pending_at", _instant),  # the effective time of the pending version
    # the scheduled times that a person has skipped
    Column("skipped_times", ARRAY(_instant), nullable=False, server_default="{}"),
    # of the runs that are not among the open runs
    Column("executions", Integer, nullable=False, server_default="0"),  # ended after an attempt
    Column("failures", Integer, nullable=False, server_default="0"),  # ended dead
    Column("last_run", _instant),  # the latest one
)

bulk_operations = Table(  # the schedules of a bulk pause, so that one resume can undo it
    "bulk_operations",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("schedule_ids", ARRAY(Uuid), nullable=False),
    Column("verb", Text, nullable=False),
    Column("created_at", _instant, nullable=False),
)

tzdata_version = Table(  # the time zone data of the planned times; one row
    "tzdata_version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", Text, nullable=False),
    Column("since", _instant, nullable=False),
)

command_results = Table(  # the responses, which repeated commands receive again
    "command_results",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("request_id", Text, primary_key=True),
    Column("item_index", Integer, primary_key=True),
    Column("response", JSON, nullable=False),
    Column("created_at", _instant, nullable=False),
)

runs = Table(  # the ledger, partitioned by day
    "runs",
    metadata,
    Column("scheduled_for", _instant, primary_key=True),
    Column("schedule_id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("override", JSON),
    Column("seq", Integer, nullable=False),
    Column("replay_number", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("origin", Text),  # trigger or backfill; null: the recurrence
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("due_at", _instant, nullable=False),
    Column("expires_at", _instant),
    Column("attempt", Integer, nullable=False),
    Column("next_attempt_at", _instant),
    Column("lease_holder", Text),
    Column("lease_until", _instant),
    Column("lease_seconds", Double),  # the length of the lease after each renewal
    Column("stop_requested_at", _instant),
    Column("staged_at", _instant),
    Column("started_at", _instant),
    Column("finished_at", _instant),
    Column("outcome", Text),
    Column("range_until", _instant),  # the last scheduled time of a skipped range
    Column("range_count", Integer),
    # of this replay number; null: none, so that most rows do not store the column
    Column("failed_probes", Integer),
    # The last republication of its ticket by the recovery, and `staged_at` before the first one.
    # Both are valid while `republished_at` equals `staged_at`.
    Column("republished_at", _instant),
    Column("first_staged_at", _instant),
    Column("epoch", Integer),  # of the database at the last claim; null: an older release
    Column("delegated_until", _instant),  # the latest end of the lease of a worker
    Column("progress", JSONB),  # percent, message and checkpoint of the last reports
    Column("progress_at", _instant),  # of the last report
)

# The high part of the fencing tokens is the timeline of the database above this base. The
# function `harebell_epoch` adds both.
ledger_epoch = Table(
    "ledger_epoch",
    metadata,
    Column("is_only", Boolean, primary_key=True),
    Column("base", Integer, nullable=False),
)

last_runs = Table(  # the last run of a schedule, of which the retention has removed the row
    "last_runs",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("scheduled_for", _instant, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("started_at", _instant),
    Column("finished_at", _instant),
)

history_marks = Table(  # the times before which the retention has removed runs
    "history_marks",
    metadata,
    Column("tenant", Text, primary_key=True),  # empty: the tenants without an own row
    Column("removed_until", _instant, nullable=False),
    Column("retention", Interval, nullable=False),
)

examined_days = Table(  # the days of runs whose expired rows are removed
    "examined_days",
    metadata,
    Column("day", Date, primary_key=True),
    Column("scope", Text, nullable=False),  # identifies the expired tenants
    Column("examined_at", _instant, nullable=False),
    Column("is_final", Boolean, nullable=False),  # other kept runs can no longer become free
)

archive_parts = Table(  # removed runs that are in the archive, or must reach it
    "archive_parts",
    metadata,
    Column("day", Date, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("needs_archive", Boolean, nullable=False),
    Column("created_at", _instant, nullable=False),
    Column("archived_at", _instant),
    Column("removed_at", _instant),
    Column("runs", BigInteger),
    Column("attempts", BigInteger),
    Column("bytes", BigInteger),
)

maintenance_leases = Table(  # the ticker that executes a task of the maintenance
    "maintenance_leases",
    metadata,
    Column("task", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("lease_until", _instant, nullable=False),
    Column("finished_at", _instant),  # the last success
)

overlap_slots = Table(  # open runs of schedules that restrict overlap, as hints
    "overlap_slots",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("scheduled_for", _instant, primary_key=True),
    Column("role", Text, nullable=False),  # running, waiting
    Column("since", _instant, nullable=False),
)

label_slots = Table(  # runs of concurrency labels, as hints
    "label_slots",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("scheduled_for", _instant, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("run_limit", Integer, nullable=False),
    Column("due_at", _instant, nullable=False),  # the place in the line
    Column("role", Text, nullable=False),  # running, waiting, reserved
    Column("since", _instant, nullable=False),
    Column("reserved_until", _instant),
)

rate_limits = Table(  # the counted starts and the reservations of each key
    "rate_limits",
    metadata,
    Column("key", Text, primary_key=True),
    Column("reservations", ARRAY(_instant), nullable=False, server_default="{}"),
    Column("starts", ARRAY(_instant), nullable=False, server_default="{}"),
    Column("expires_at", _instant),  # the state has no effect after this time
)

attempts = Table(  # append-only
    "attempts",
    metadata,
    Column("scheduled_for", _instant, primary_key=True),
    Column("schedule_id", Uuid, primary_key=True),
    Column("replay_number", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("lease_holder", Text),
    Column("started_at", _instant),
    Column("finished_at", _instant, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error_code", Text),
    Column("error", Text),
    Column("http_status", SmallInteger),
    Column("duration_ms", Double),
    Column("result", Text),
    Column("is_failed_probe", Boolean),  # true or null
    Column("trace", Text),  # the traceparent of its recorded span
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Uuid, primary_key=True),  # contains the tenant; unique without it too
    Column("kind", Text, nullable=False),  # run, message
    Column("schedule_id", Uuid),
    Column("scheduled_for", _instant),
    Column("replay_number", Integer),
    Column("key", Text),
    Column("reason", Text, nullable=False),
    Column("error_code", Text),
    Column("error", Text),
    Column("attempts", Integer, nullable=False),
    Column("dead_at", _instant, nullable=False),
    Column("state", Text, nullable=False),  # open, replayed, discarded, superseded
    Column("payload", JSONB, nullable=False),  # the DeadRun or the DeadMessage, without the body
    Column("body", LargeBinary),  # of a message
    Column("root_id", Uuid),  # the dead letter of replay number 0
    Column("discarded_at", _instant),
    Column("discarded_by", Text),
    Column("discard_note", Text),
    Column("target", JSON),  # of an edited copy, instead of the target of the version
    Column("edited_from", Uuid),  # the dead letter that was copied
    Column("edited_at", _instant),
    Column("edited_by", Text),
    Column("edit_note", Text),
    Column("group_id", Uuid, nullable=False),
    Column("kept_at", _instant, nullable=False),  # the time of the insertion
    Column("is_imported", Boolean, nullable=False),
)

failure_groups = Table(
    "failure_groups",
    metadata,
    Column("id", Uuid, primary_key=True),  # derived from the next four
    Column("tenant", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("error_code", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("first_at", _instant, nullable=False),
    Column("last_at", _instant, nullable=False),
    Column("state", Text, nullable=False),  # open, muted, archived
    Column("muted_until", _instant),
    Column("note", Text),
    Column("changed_at", _instant),
    Column("changed_by", Text),
)

replays = Table(
    "replays",
    metadata,
    Column("dead_letter_id", Uuid, primary_key=True),
    Column("replay_number", Integer, nullable=False),  # of the replayed run
    Column("actor", Text),
    Column("note", Text),
    Column("replayed_at", _instant, nullable=False),
)

replay_jobs = Table(
    "replay_jobs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("state", Text, nullable=False),  # running, paused, done, aborted
    Column("reason", Text),  # of the state aborted or of an automatic pause
    Column("request", JSONB, nullable=False),  # the command
    Column("actor", Text),
    Column("note", Text),
    Column("canary", Integer),
    Column("rate", Double),  # replays in a second
    Column("abort_on_failure_ratio", Double),
    Column("pool", Text),
    Column("total", Integer, nullable=False),
    Column(
        "taken", Integer, nullable=False, server_default="0"
    ),  # the number of items that the job has processed
    Column("replayed", Integer, nullable=False, server_default="0"),
    Column("succeeded", Integer, nullable=False, server_default="0"),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column(
        "next_allowed_at", _instant, nullable=False
    ),  # the rate allows no replay before this time
    Column("next_check_at", _instant),  # null: after a command only
    Column("created_at", _instant, nullable=False),
    Column("changed_at", _instant),
    Column("changed_by", Text),
    Column("finished_at", _instant),
    Column("progressed_at", _instant),  # the last replay or the last end of a run
)

replay_items = Table(
    "replay_items",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("position", Integer, primary_key=True),  # from 1
    Column("dead_letter_id", Uuid, nullable=False),
    Column("status", Text, nullable=False, server_default="waiting"),  # or the result of the replay
    Column("outcome", Text),  # of a replayed and ended run
)

alerts = Table(  # published alerts, so that no check publishes them again
    "alerts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("verb", Text, primary_key=True),  # of the event
    Column("subject", Text, primary_key=True),
    Column("notified_at", _instant, nullable=False),
)

alert_posts = Table(  # alerts that the webhook has not confirmed, or confirmed within an hour
    "alert_posts",
    metadata,
    Column("event_key", Text, primary_key=True),  # derived from the source and the id of the event
    Column("alert_key", Text, nullable=False),  # from its source, its type and its subject
    Column("event", JSON, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("created_at", _instant, nullable=False),
    Column("next_try_at", _instant, nullable=False),
    Column("delivered_at", _instant),  # null: not confirmed
)


def _breaker_columns() -> tuple[Column[Any], ...]:
    return (
        Column(
            "state", Text, nullable=False, server_default="closed"
        ),  # the state that dispatchers measured
        Column("since", _instant),  # null: no dispatcher has reported a state
        Column("failed", Integer, nullable=False, server_default="0"),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("reason", Text),  # of the last opening
        Column("next_probe_at", _instant),  # of an open breaker
        Column("forced", Text),  # open or closed, set by a person
        Column("forced_at", _instant),
        Column("forced_until", _instant),
        Column("note", Text),
        Column("actor", Text),
    )


breakers = Table(  # the breakers that hold all tenants: open, half open or forced
    "breakers",
    metadata,
    Column("downstream", Text, primary_key=True),
    *_breaker_columns(),
)

tenant_breakers = Table(  # the breakers that hold one tenant: open, half open or forced
    "tenant_breakers",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("downstream", Text, primary_key=True),
    *_breaker_columns(),
)

breaker_deferrals = Table(  # the times in which a breaker of all tenants deferred runs
    "breaker_deferrals",
    metadata,
    Column("downstream", Text, primary_key=True),
    Column("since", _instant, primary_key=True),
    Column("until", _instant),  # null: the breaker still defers
)

tenant_breaker_deferrals = Table(  # the times in which a breaker of one tenant deferred its runs
    "tenant_breaker_deferrals",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("downstream", Text, primary_key=True),
    Column("since", _instant, primary_key=True),
    Column("until", _instant),  # null: the breaker still defers
)

calendar_versions = Table(  # the latest versions of each calendar; the last one is in force
    "calendar_versions",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("content", JSON, nullable=False),  # of the command, without defaults
    Column("is_deleted", Boolean, nullable=False),
    Column("accepted_at", _instant, nullable=False),
    Column("actor", Text),
    Column("note", Text),
)

schedule_calendars = Table(  # the schedules that use a calendar or used it before
    "schedule_calendars",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("calendar", Text, primary_key=True),
    Column("schedule_id", Uuid, ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
    Index("schedule_calendars_schedule", "schedule_id"),
)

tenant_usage = Table(  # what tenants did and what was refused, by minute, for two hours
    "tenant_usage",
    metadata,
    Column("minute", _instant, primary_key=True),
    Column("tenant", Text, primary_key=True),
    Column("rule", Text, primary_key=True),  # a quota, or a field of the tenant policy
    Column("code", Text, primary_key=True),  # of the refusal, or empty if nothing was refused
    Column("number", BigInteger, nullable=False),
)

# asyncpg returns the text of such a column.
JSON_COLUMNS: Final = frozenset(
    column.name
    for table in metadata.tables.values()
    for column in table.columns
    if isinstance(column.type, JSON)
)
