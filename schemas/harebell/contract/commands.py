"""Commands of services and operators, by verb. An unknown field is an error."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import orjson
from pydantic import Field, StringConstraints, field_validator, model_validator

from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.calendar import CALENDAR_COMMANDS
from harebell.contract.command_base import CommandBase
from harebell.contract.dead_letter import ExportedDeadLetter, OpenDeadLetterFilter
from harebell.contract.errors import InvalidInput
from harebell.contract.message import StrictMessage, invalid, text_of_form
from harebell.contract.policy import Overlap
from harebell.contract.progress import Progress
from harebell.contract.schedule import Definition
from harebell.contract.target import Target
from harebell.contract.types import (
    CheckedJson,
    Count,
    Duration,
    Instant,
    PoolName,
    ShortText,
    Text,
    check_filter,
    exactly_one_of,
)
from harebell.contract.when import When

MAX_ITEMS: Final = 500  # of one message
MAX_BODY: Final = 1024 * 1024  # bytes of one message
MAX_ITEM: Final = 96 * 1024  # bytes of one item, as sent
MAX_DEAD_LETTER_IDS: Final = 500  # of one command
MAX_REPLAY_JOB_SIZE: Final = 100_000  # dead letters of one replay job, the oldest first
MIN_REPLAY_RATE: Final = 0.001  # replays per second
MAX_REPLAY_RATE: Final = 1_000.0  # replays per second
MAX_BACKFILL: Final = 1000  # runs of one command
MAX_BULK_SCHEDULES: Final = 10_000  # schedules of one command
MAX_PENDING_VERSIONS: Final = 20  # of one schedule
MAX_RESULT: Final = 1024  # bytes of JSON, of a run that a worker completes
MAX_FAILURE_REASON: Final = 1024  # characters
MAX_TOKEN: Final = 2**53 - 1  # so that every JSON reader can store a fencing token


class SchedulePut(Definition, CommandBase):
    """Create a schedule, or replace it if `expected_version` is its version or "any".

    Without `when`, the default of the tenant applies. With `effective_at`, the present version
    remains in force until that time. An ended schedule starts again only with `revive`.
    """

    when: When | None = None  # type: ignore[assignment]  # intake adds the default of the tenant
    expected_version: Count | Literal["any"] | None = None
    effective_at: Instant | None = None
    revive: bool | None = None  # no effect on a schedule that has not ended
    note: ShortText | None = None

    @property
    def definition(self) -> Definition:
        """Return the command as a definition. Raise `InvalidInput` without `when`."""
        if self.when is None:
            reason = "The field 'when' is required."
            raise InvalidInput(reason, field="when", code="missing_field")
        return self


class ScheduleCommand(CommandBase):
    """A command to one existing schedule, by key or by id."""

    key: ShortText | None = None
    id: UUID | None = None
    note: ShortText | None = None

    _check_reference = exactly_one_of("key", "id")


class ScheduleFilter(StrictMessage):
    """A filter of schedules with at least one field, whose fields must all match."""

    tag: ShortText | None = None
    owner: ShortText | None = None
    name: ShortText | None = None
    state: ShortText | None = None

    _check_fields = model_validator(mode="after")(check_filter)


class BulkCommand(ScheduleCommand):
    """A command to one schedule, or a bulk operation on all schedules that match `select`.

    `bulk_operation_id` selects the schedules that an earlier bulk operation changed. Only
    `schedule.resume` accepts this field.
    """

    select: ScheduleFilter | None = None
    bulk_operation_id: ShortText | None = None

    _check_reference = exactly_one_of("key", "id", "select", "bulk_operation_id")

    @property
    def is_bulk(self) -> bool:
        """Return whether the command starts a bulk operation."""
        return self.select is not None or self.bulk_operation_id is not None


class SchedulePatch(ScheduleCommand):
    """Change a schedule. `set` is a JSON merge patch (RFC 7396), and null restores a default.

    If `when` has a rule, such as `cron`, it replaces the former rule. Ended schedules start again
    only with `revive`.
    """

    set_: dict[str, CheckedJson] = Field(alias="set")
    expected_version: Count | None = None
    effective_at: Instant | None = None
    revive: bool | None = None  # no effect on a schedule that has not ended


class SchedulePause(BulkCommand):
    """Stage no run until `schedule.resume`, or until `until`."""

    until: Instant | None = None


class ScheduleResume(BulkCommand):
    """Resume a paused schedule. The catch-up policy decides which missed times get a run."""


class ScheduleCancel(BulkCommand):
    """Cancel a schedule permanently, with its runs that wait for a retry."""


class ScheduleDelete(ScheduleCommand):
    """Remove an ended schedule from the lists. Its versions and its runs stay readable.

    A later put may use the key again.
    """


class ScheduleTrigger(ScheduleCommand):
    """Stage one manual run at once. `overlap` replaces the overlap policy of the schedule."""

    overlap: Overlap | None = None


class ScheduleSkip(ScheduleCommand):
    """Skip the run of one scheduled time."""

    at: Instant


class ScheduleBackfill(ScheduleCommand):
    """Stage manual runs for the scheduled times from `from` to `to`, both inclusive.

    A scheduled time that already has a run gets no second run.
    """

    from_: Instant = Field(alias="from")
    to: Instant
    max: Annotated[Count, Field(le=MAX_BACKFILL)] = 100
    dry_run: bool = False


class RunCancel(CommandBase):
    """Cancel a run that has not started, or request a running run to stop."""

    run_id: ShortText
    note: ShortText | None = None


class Resolution(StrEnum):
    """The decision of a person about an unresolved run."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    RETRY = "retry"


class RunResolve(CommandBase):
    """Resolve an unresolved run. The last resolved run unblocks its schedule."""

    run_id: ShortText
    as_: Resolution = Field(alias="as")
    note: ShortText | None = None


class RunReport(CommandBase):
    """A report of a worker about a delegated run, with the fencing token that its call contained.

    A report with another token than that of the present attempt is rejected (`stale_token`).
    """

    run_id: ShortText
    fencing_token: Annotated[int, Field(ge=1, le=MAX_TOKEN, strict=True)]


class RunComplete(RunReport):
    """Complete a delegated run as succeeded. `result` is stored with the attempt."""

    result: CheckedJson | None = None

    @field_validator("result")
    @classmethod
    def _check_result(cls, result: Any) -> Any:  # noqa: ANN401  # JSON is any of its types
        if (size := len(orjson.dumps(result))) > MAX_RESULT:
            reason = f"The result must have at most {MAX_RESULT} bytes of JSON, not {size}."
            raise invalid("too_large", reason)
        return result


class RunFail(RunReport):
    """Fail the attempt of a delegated run. The retry policy of the schedule then applies.

    `retryable` false makes the run dead, and `retry_after` is the shortest wait before the next
    attempt.
    """

    code: Annotated[
        str,
        text_of_form(
            r"^[a-z][a-z0-9_]{0,63}$",
            "have 1 to 64 lower-case letters, digits and _, and begin with a letter",
        ),
    ]
    reason: Annotated[Text, StringConstraints(max_length=MAX_FAILURE_REASON)] = ""
    retryable: bool = True
    retry_after: Duration | None = None


class RunHeartbeat(Progress, RunReport):
    """Renew the lease of a delegated run, with its progress.

    The response contains a stop request, if one exists.
    """


class DeadLetterCommand(CommandBase):
    """A command to dead letters, by id."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)]
    note: ShortText | None = None


class DeadLetterReplay(DeadLetterCommand):
    """Execute dead runs again, each with a new replay number."""


class DeadLetterDiscard(DeadLetterCommand):
    """Close dead letters without a replay. Their records remain until the retention ends."""


class DeadLetterEdit(CommandBase):
    """Replace a dead letter by a copy whose replay calls another target or sends other data.

    The record of the original remains, and the copy refers to the original.
    """

    id: UUID
    target: Target
    note: ShortText | None = None


class DeadLetterImport(CommandBase):
    """Store dead letters that `dlq.get` returned, here or elsewhere. Known ones do not change."""

    dead_letters: Annotated[
        list[ExportedDeadLetter], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)
    ]
    note: ShortText | None = None


class ReplayJobStart(CommandBase):
    """Replay the dead letters that are open now, gradually.

    `canary` is the number of dead letters that must all succeed first. `rate` is the maximum number
    of replays per second, from 0.001 to 1,000. `abort_on_failure_ratio` is the ratio of failed
    runs, from 0 to 1, that aborts the job.
    """

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)] | None = None
    select: OpenDeadLetterFilter | None = None
    canary: Annotated[Count, Field(le=MAX_REPLAY_JOB_SIZE)] | None = None
    rate: Annotated[float, Field(ge=MIN_REPLAY_RATE, le=MAX_REPLAY_RATE, strict=True)] | None = None
    abort_on_failure_ratio: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    pool: PoolName | None = None  # replaces the pools of the schedules
    dry_run: bool = False
    note: ShortText | None = None

    _check_reference = exactly_one_of("ids", "select")


class ReplayJobCommand(CommandBase):
    """A command to a replay job, by id."""

    id: UUID
    note: ShortText | None = None


class ReplayJobPause(ReplayJobCommand):
    """Pause a replay job until `dlq.replay_job.resume`."""


class ReplayJobResume(ReplayJobCommand):
    """Continue a paused replay job."""


class ReplayJobAbort(ReplayJobCommand):
    """Abort a replay job permanently. Dead letters that it has not replayed remain open."""


class GroupCommand(CommandBase):
    """A command to failure groups, by id."""

    groups: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)]
    note: ShortText | None = None


class GroupNote(GroupCommand):
    """Replace the note of failure groups."""

    note: ShortText


class GroupMute(GroupCommand):
    """Hide failure groups from the open groups until a time. Their new dead letters are stored."""

    until: Instant


class GroupArchive(GroupCommand):
    """Hide failure groups until their next failure. Their dead letters do not change."""


class GroupReopen(GroupCommand):
    """Open failure groups that are muted or archived."""


SCHEDULE_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "schedule.put": SchedulePut,
    "schedule.patch": SchedulePatch,
    "schedule.pause": SchedulePause,
    "schedule.resume": ScheduleResume,
    "schedule.cancel": ScheduleCancel,
    "schedule.delete": ScheduleDelete,
    "schedule.trigger": ScheduleTrigger,
    "schedule.skip": ScheduleSkip,
    "schedule.backfill": ScheduleBackfill,
    "run.cancel": RunCancel,
    "run.resolve": RunResolve,
}
REPORT_COMMANDS: Final[dict[str, type[RunReport]]] = {
    "run.complete": RunComplete,
    "run.fail": RunFail,
    "run.heartbeat": RunHeartbeat,
}
DEAD_LETTER_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "dlq.replay": DeadLetterReplay,
    "dlq.discard": DeadLetterDiscard,
    "dlq.edit": DeadLetterEdit,
    "dlq.import": DeadLetterImport,
    "dlq.replay_job.start": ReplayJobStart,
    "dlq.replay_job.pause": ReplayJobPause,
    "dlq.replay_job.resume": ReplayJobResume,
    "dlq.replay_job.abort": ReplayJobAbort,
    "dlq.group.note": GroupNote,
    "dlq.group.mute": GroupMute,
    "dlq.group.archive": GroupArchive,
    "dlq.group.reopen": GroupReopen,
}
COMMANDS: Final[dict[str, type[CommandBase]]] = {
    **SCHEDULE_COMMANDS,
    **CALENDAR_COMMANDS,
    **REPORT_COMMANDS,
    **DEAD_LETTER_COMMANDS,
    **BREAKER_COMMANDS,
}
