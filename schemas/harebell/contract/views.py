"""Views: one typed model for each kind of row that a query returns.

A later release may add optional fields to a view and never removes or renames a field.
A response leaves out a field whose value is null.
"""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, WithJsonSchema

from harebell.contract.ids import RunId
from harebell.contract.message import Message, empty_default
from harebell.contract.types import DelayedInstant, Instant, Json, Milliseconds


def _document(description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "description": description})


# Documents, which a client can send back with fields that it does not know (decision 107).
DefinitionJson = Annotated[
    dict[str, Any], _document("A definition as in `schedule.put`, with its defaults.")
]
PayloadJson = Annotated[
    dict[str, Any],
    _document(
        "Of a dead run: the body of `harebell.run.dead.v1`. Of a dead message: its properties."
    ),
]
HeadersJson = Annotated[dict[str, Any], _document("The AMQP headers of a dead message.")]
ReplayJobJson = Annotated[dict[str, Any], _document("The body of `dlq.replay_job.start`.")]


class ViewResponse(Message):
    """The base of each view that is the whole response of a query."""

    ok: Literal[True] = True


class LastRunView(Message):
    """The latest run of a schedule that has started or ended, by its scheduled time."""

    run_id: RunId
    scheduled_for: Instant
    state: str
    reason: str | None = None
    started_at: Instant | None = None  # of the last attempt
    finished_at: Instant | None = None


class ScheduledVersion(Message):
    """A version with the time from which it is in force."""

    version: int
    effective_at: Instant


class ScheduleView(Message):
    """One schedule with its state, its next scheduled time and its last run.

    A schedule is `completed` when it requires no further run and all its runs have ended.
    """

    id: UUID
    key: str | None = None
    name: str | None = None
    owner: str | None = None
    tenant: str
    class_: str = Field(alias="class")
    priority: int
    pool: str
    state: str
    # How a completed schedule ended, which is the state of its last run: succeeded, dead, expired,
    # cancelled, skipped, unresolved.
    result: str | None = None
    reason: str | None = None  # of `errored`, or the note of a pause or a cancellation
    version: int
    next_at: Instant | None = None  # the scheduled time of the next run, if it is known
    last_run: LastRunView | None = None
    executions: int = 0  # runs that have ended after at least one attempt
    failures: int = 0  # runs that have ended dead and were not replayed since
    tags: list[str] = empty_default(list)
    created_at: Instant
    updated_at: Instant
    paused_until: Instant | None = None
    pending_version: int | None = None
    pending_at: Instant | None = None  # the effective time of the pending version
    consecutive_failures: int = 0
    skipped_times: list[Instant] = empty_default(list)


class ScheduleDetail(ScheduleView, ViewResponse):
    """One schedule with the definition of its version, and every pending version in order."""

    definition: DefinitionJson
    pending_versions: list[ScheduledVersion] = empty_default(list)


class VersionView(Message):
    """One version of a schedule. `in_force` marks the active version that took effect last."""

    version: int
    accepted_at: Instant
    effective_at: Instant
    status: str  # pending, active, superseded, failed, missed
    status_reason: str | None = None
    actor: str | None = None
    note: str | None = None
    in_force: bool
    definition: DefinitionJson


class VersionListView(ViewResponse):
    """The newest versions of a schedule, the latest first."""

    id: UUID
    key: str | None = None
    versions: list[VersionView]


class UpcomingRunNote(Message):
    """One fact about an upcoming run, such as a clock change or a jitter."""

    about: str  # days, dst_gap, dst_overlap, jitter, phase, skipped, sequential, step
    text: str


class UpcomingRunView(Message):
    """One run that the schedule will stage. `local` is `at` in the time zone of the schedule."""

    at: Instant
    local: str
    due_at: DelayedInstant
    notes: list[UpcomingRunNote] = empty_default(list)


class PreviewView(ViewResponse):
    """The next scheduled times of a schedule, stored or not. `state` tells whether they run."""

    id: UUID
    key: str | None = None
    state: str
    paused_until: Instant | None = None
    instants: list[UpcomingRunView]


class RunView(Message):
    """One run. `range_count` is the number of skipped times that it represents."""

    run_id: RunId
    schedule_id: UUID
    key: str | None = None
    scheduled_for: Instant
    due_at: Instant
    state: str
    reason: str | None = None
    attempt: int
    replay_number: int = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    late_ms: Milliseconds | None = None  # from `due_at` to the start of the first attempt
    outcome: str | None = None
    next_attempt_at: Instant | None = None
    expires_at: Instant | None = None
    pool: str
    lane: str
    version: int
    origin: str | None = None  # trigger, backfill
    range_until: Instant | None = None
    range_count: int | None = None
    tier: str | None = None  # immediate, hot, cold
    tier_reason: str | None = None
    failed_probes: int = 0  # failed probes of a breaker, which do not count for `max_attempts`


class ForecastGroup(Message):
    """The number of runs of one pool, tenant or tag in each hour of a forecast.

    `name` is null for runs without a tag, and for the sum of the smallest groups (`is_rest`).
    A null in `runs` is an hour without a count.
    """

    name: str | None = None
    is_rest: bool = False
    total: int
    runs: list[int | None]


class ForecastCalendar(Message):
    """The number of planned times of a forecast that one calendar excludes or holds back.

    `excluded` counts the times of schedules within the calendar, which are moved or get no run.
    `held` counts the times whose start waits for the end of the calendar.
    """

    name: str
    tenant: str
    excluded: int = 0
    held: int = 0


class ForecastView(ViewResponse):
    """The number of runs that are due in each hour, by group, with the largest group first.

    Hours before `at` come from the record, and later hours from the planning. Lateness is that of
    first attempts, and null for an hour without one. `notes` tells what is not counted.
    """

    at: Instant  # the time of the answer
    from_: Instant = Field(alias="from")
    to: Instant
    by: str  # pool, tenant, tag
    hours: list[Instant]  # their starts
    runs: list[int | None]  # of all groups, each run once
    late_p50_ms: list[Milliseconds | None]
    late_p99_ms: list[Milliseconds | None]
    groups: list[ForecastGroup] = empty_default(list)
    quiet_hours: list[Instant] = empty_default(list)  # hours without a run
    calendars: list[ForecastCalendar] = empty_default(list)  # that decide times after `at`
    notes: list[str] = empty_default(list)


class AttemptView(Message):
    """One completed attempt of a run. A failed probe does not count for `max_attempts`."""

    replay_number: int = 0
    number: int
    lease_holder: str | None = None
    started_at: Instant | None = None
    finished_at: Instant
    duration_ms: Milliseconds | None = None
    outcome: str
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None
    result: str | None = None
    is_failed_probe: bool = False  # of a breaker


class ProgressView(Message):
    """The last report about the progress of a run, at a time. `text` contains it as a sentence.

    `is_stale` is true if the run still runs and the report is old or of an earlier attempt.
    """

    text: str
    percent: float | None = None
    message: str | None = None
    checkpoint: Json | None = None
    at: Instant
    is_stale: bool = False


class RunDetail(RunView, ViewResponse):
    """One run with its latest attempts, in the order of their numbers."""

    progress: ProgressView | None = None

    attempts: list[AttemptView] = empty_default(list)


class ExplanationView(ViewResponse):
    """The reason why a run of one scheduled time did or did not start."""

    id: UUID
    key: str | None = None
    state: str  # of the schedule
    at: Instant | None = None
    verdict: str
    reason: str | None = None  # a run reason, or a schedule state
    text: str
    notes: list[str] = empty_default(list)
    version: int | None = None  # the version in force at `at`
    before: Instant | None = None  # the last scheduled time before `at`
    after: Instant | None = None  # the first scheduled time after `at`
    run: RunView | None = None
    attempts: list[AttemptView] = empty_default(list)


class BreakerView(Message):
    """One circuit breaker. `effective_state` is `forced` if a person forced it, else `state`.

    `next_probe_at` is the earliest time of the next probe of an open breaker.
    """

    tenant: str | None = None  # null: the breaker holds all tenants
    downstream: str
    effective_state: str  # closed, open, half_open
    state: str
    since: Instant | None = None
    failed: int = 0
    attempts: int = 0
    reason: str | None = None  # a `BreakerReason`
    next_probe_at: Instant | None = None
    forced: str | None = None  # open, closed
    forced_at: Instant | None = None
    forced_until: Instant | None = None
    note: str | None = None
    actor: str | None = None


class DeadLetterView(Message):
    """One dead letter without its payload."""

    id: UUID
    kind: str  # run, message
    run_id: RunId | None = None
    key: str | None = None
    tenant: str
    reason: str
    error_code: str | None = None
    error: str | None = None
    attempts: int
    dead_at: Instant
    state: str  # open, replayed, resolved, discarded, superseded
    replays: int = 0
    run_state: str | None = None
    group: UUID | None = None


class ReplayView(Message):
    """One replay of a dead run or command. `run_state` is the state in which that replay ended."""

    replay_number: int
    at: Instant
    actor: str | None = None
    note: str | None = None
    run_state: str | None = None


class DeadLetterDecision(Message):
    """The time, the actor and the note of a discard or an edit."""

    at: Instant
    actor: str | None = None
    note: str | None = None


class DeadLetterDetail(DeadLetterView, ViewResponse):
    """One dead letter with its payload and its replays. `body` is in base64, maybe truncated."""

    payload: PayloadJson
    body: str | None = None
    headers: HeadersJson | None = None
    queue: str | None = None
    replay_history: list[ReplayView] = empty_default(list)
    root_id: UUID | None = None  # the dead letter of the first replay number of the run
    discarded: DeadLetterDecision | None = None
    edited_from: UUID | None = None  # the dead letter of which this one is an edited copy
    edited: DeadLetterDecision | None = None


class FailureGroupView(Message):
    """One failure group with its counts. `trend` compares the last hour with the hour before."""

    id: UUID
    state: str  # open, muted, archived
    open: int
    dead_letters: int
    trend: str  # quiet, rising, falling, steady
    last_hour: int
    hour_before: int
    first_at: Instant
    last_at: Instant
    target: str
    error_code: str
    message: str
    note: str | None = None
    changed_by: str | None = None
    changed_at: Instant | None = None
    muted_until: Instant | None = None


class ReplayJobView(Message):
    """One replay job with its progress.

    `rejected` counts the dead letters that the job took and could not replay.
    """

    id: UUID
    state: str  # running, paused, done, aborted
    reason: str | None = None
    total: int
    taken: int
    replayed: int
    succeeded: int
    failed: int
    rejected: int
    remaining: int
    actor: str | None = None
    note: str | None = None
    changed_by: str | None = None
    created_at: Instant
    changed_at: Instant | None = None
    finished_at: Instant | None = None


class ReplayJobWait(Message):
    """The reason for which a replay job does not replay its next dead letter now.

    `until` is the time at which the wait ends, if a time ends it.
    """

    code: str  # paused, canary, rate, breaker, unfinished_runs
    text: str  # the reason as sentences
    until: Instant | None = None
    downstream: str | None = None  # of the breaker
    next_probe_at: Instant | None = None  # the earliest time of the next probe of the breaker


class ReplayJobDetail(ReplayJobView, ViewResponse):
    """One replay job with the command that started it.

    `waiting_for` is null for a job that has ended or that replays its next dead letter now.
    """

    waiting_for: ReplayJobWait | None = None
    request: ReplayJobJson


class ReplayItemView(Message):
    """One dead letter of a replay job. `outcome` is the state in which its run ended."""

    position: int
    id: UUID
    status: str  # waiting, or the result of the replay
    outcome: str | None = None


class ParkedMessageView(Message):
    """A dead letter that cannot be stored. `body` is the first part of the body, in base64.

    `reason` is the reason of the broker: rejected (by the dlq_inspector, which logs the error) or
    delivery_limit.
    """

    message_id: str | None = None
    type: str | None = None
    routing_key: str
    reason: str | None = None
    parked_at: Instant | None = None
    size: int
    body: str


class ParkedView(ViewResponse):
    """The number of parked messages, and the oldest of them."""

    total: int
    messages: list[ParkedMessageView]


class QuotaUsage(Message):
    """One quota of a tenant with its use. Without `limit`, the quota does not exist.

    `used` is absent if only the broker knows the use. `refused` counts the refusals of the last
    hour.
    """

    quota: str  # a field of the quotas of the tenant policy
    limit: float | None = None
    used: float | None = None
    is_at_least: bool = False  # the count of `used` has reached its bound
    refused: int = 0


class RefusalCount(Message):
    """The refusals of the last hour by one field of the tenant policy."""

    code: str  # not_allowed
    rule: str
    refused: int


class TenantUsageView(Message):
    """The quotas of one tenant and the other refusals by its policy."""

    tenant: str
    quotas: list[QuotaUsage]
    refusals: list[RefusalCount] = empty_default(list)
