"""The tables as SQLAlchemy sees them: the schema that migrations build, for queries."""

from sqlalchemy import (
    Column,
    DateTime,
    Double,
    Integer,
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

schedules = Table(  # what users define; seldom written, so it may have many indexes
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

schedule_versions = Table(  # immutable: a ticket can be made again from it alone
    "schedule_versions",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("definition", JSON, nullable=False),  # as submitted, without defaults
    Column("run_spec", JSON, nullable=False),  # what its tickets carry
    Column("fingerprint", Text, nullable=False),
    Column("accepted_at", _instant, nullable=False),
    Column("effective_at", _instant, nullable=False),
    Column("anchor_at", _instant),  # that relative times are reckoned from; null: effective_at
    Column(
        "status", Text, nullable=False, server_default="active"
    ),  # pending, commenced, skipped, rejected, missed
    Column("status_reason", Text),
    Column("actor", Text),
    Column("note", Text),
    Column("planned_from", _instant),  # where it took over; null: it began with its own time
    Column("planned_until", _instant),  # up to there it had decided when another took over
)

schedule_state = Table(  # narrow; written on every run
    "schedule_state",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),  # of parked, or the note of who paused or cancelled it
    Column("next_at", _instant),  # when a ticker must look again; null: never by itself
    Column("changed_at", _instant, nullable=False),  # acceptance of the last change applied
    Column("planned_until", _instant, nullable=False),  # every instant up to here has been decided
    Column("dispatched", Integer, nullable=False),  # runs that count towards `times`
    Column("open_runs", ARRAY(_instant), nullable=False),  # handed over, not known to have ended
    Column("awaited_run", _instant),  # the run whose end decides what comes next
    Column(
        "consecutive_failures", Integer, nullable=False, server_default="0"
    ),  # consecutive runs, up to the last that was seen
    Column("paused_until", _instant),
    Column("pending_version", Integer),
    Column("pending_at", _instant),  # when the pending version commences
    Column(
        "skipped_times", ARRAY(_instant), nullable=False, server_default="{}"
    ),  # instants taken out by a person
)

bulk_operations = Table(  # which schedules a selecting command changed, so that it can be undone
    "bulk_operations",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("schedule_ids", ARRAY(Uuid), nullable=False),
    Column("verb", Text, nullable=False),
    Column("created_at", _instant, nullable=False),
)

tzdata_version = Table(  # by which release of the zone data next instants were computed; one row
    "tzdata_version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", Text, nullable=False),
    Column("since", _instant, nullable=False),
)

command_results = Table(  # what was answered, so that a repeat gets the first answer
    "command_results",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("request_id", Text, primary_key=True),
    Column("item_index", Integer, primary_key=True),
    Column("response", JSON, nullable=False),
    Column("created_at", _instant, nullable=False),
)

runs = Table(  # the ledger: what was owed, and what became of it; partitioned by day
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
    Column("origin", Text),  # null: its timetable; trigger
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("due_at", _instant, nullable=False),
    Column("expires_at", _instant),
    Column("attempt", Integer, nullable=False),
    Column("next_attempt_at", _instant),
    Column("lease_holder", Text),
    Column("lease_until", _instant),
    Column("lease_seconds", Double),  # how long each renewal holds
    Column("stop_requested_at", _instant),
    Column("staged_at", _instant),
    Column("started_at", _instant),
    Column("finished_at", _instant),
    Column("outcome", Text),
    Column("range_until", _instant),  # of a row that stands for several skipped instants
    Column("range_count", Integer),
)

overlap_slots = Table(  # a hint of where to look: an open run of a schedule that takes turns
    "overlap_slots",
    metadata,
    Column("schedule_id", Uuid, primary_key=True),
    Column("scheduled_for", _instant, primary_key=True),
    Column("role", Text, nullable=False),  # holder, waiting
    Column("since", _instant, nullable=False),
)

rate_limits = Table(  # what has been counted of starts
    "rate_limits",
    metadata,
    Column("key", Text, primary_key=True),
    Column("reservations", ARRAY(_instant), nullable=False, server_default="{}"),
    Column("starts", ARRAY(_instant), nullable=False, server_default="{}"),
    Column("expires_at", _instant),  # when it says nothing any more
)

attempts = Table(  # append-only; one row a try
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
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text),
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
    Column("state", Text, nullable=False),  # open, replayed, dropped, edited
    Column("payload", JSONB, nullable=False),  # the whole DeadRun or DeadMessage, but for the body
    Column("body", LargeBinary),  # of a message
    Column("root_id", Uuid),  # the dead letter of the run's first series
    Column("discarded_at", _instant),
    Column("discarded_by", Text),
    Column("discard_note", Text),
    Column("target", JSON),  # of an edited copy: what its run calls in place of its version's
    Column("edited_from", Uuid),  # the letter that it is a copy of
    Column("edited_at", _instant),
    Column("edited_by", Text),
    Column("edit_note", Text),
    Column("group_id", Uuid, nullable=False),
)

failure_groups = Table(  # failures that are the same but for what differs each time
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
    Column("replay_number", Integer, nullable=False),  # the one it began
    Column("actor", Text),
    Column("note", Text),
    Column("replayed_at", _instant, nullable=False),
)

replay_jobs = Table(  # a frozen set of letters that the inspector replays little by little
    "replay_jobs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("state", Text, nullable=False),  # running, paused, done, aborted
    Column("reason", Text),  # of aborted, or of a pause that nobody asked for
    Column("request", JSONB, nullable=False),  # the command
    Column("actor", Text),
    Column("note", Text),
    Column("canary", Integer),
    Column("rate", Double),  # replays a second
    Column("abort_on_failure_ratio", Double),
    Column("pool", Text),
    Column("total", Integer, nullable=False),
    Column("taken", Integer, nullable=False, server_default="0"),  # of the items, in their order
    Column("replayed", Integer, nullable=False, server_default="0"),
    Column("succeeded", Integer, nullable=False, server_default="0"),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("next_allowed_at", _instant, nullable=False),  # from when on the rate allows the next
    Column("next_check_at", _instant),  # when an inspector must look again; null: never by itself
    Column("created_at", _instant, nullable=False),
    Column("changed_at", _instant),
    Column("changed_by", Text),
    Column("finished_at", _instant),
    Column("progressed_at", _instant),  # when it last took letters, or saw runs of it end
)

replay_items = Table(
    "replay_items",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("position", Integer, primary_key=True),  # from 1
    Column("dead_letter_id", Uuid, nullable=False),
    Column("status", Text, nullable=False, server_default="waiting"),  # or what became of it
    Column("outcome", Text),  # of a replayed run, when it has ended
)

alerts = Table(  # what people were told of, so that they are not told each time somebody looks
    "alerts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("verb", Text, primary_key=True),  # of the event
    Column("subject", Text, primary_key=True),
    Column("notified_at", _instant, nullable=False),
)

breakers = Table(  # of whom targets call: few rows, those that are not simply closed
    "breakers",
    metadata,
    Column("downstream", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default="closed"),  # as dispatchers found
    Column("since", _instant),  # null: they have found nothing yet
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("forced", Text),  # open or closed, by a person
    Column("forced_at", _instant),
    Column("forced_until", _instant),
    Column("note", Text),
    Column("actor", Text),
)
