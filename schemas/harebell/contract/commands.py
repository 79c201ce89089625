"""Commands: what services and operators ask for, by verb. Unknown fields are refused."""

from enum import StrEnum
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field, model_validator

from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.command_base import CommandBase
from harebell.contract.dead_letter import ExportedDeadLetter, OpenDeadLetterFilter
from harebell.contract.errors import InvalidInput
from harebell.contract.message import StrictMessage, invalid
from harebell.contract.policy import Overlap
from harebell.contract.schedule import Definition
from harebell.contract.target import Target
from harebell.contract.types import CheckedJson, Count, Instant, PoolName, ShortText
from harebell.contract.when import When

MAX_ITEMS: Final = 500  # of one message
MAX_BODY: Final = 1024 * 1024  # bytes of one message
MAX_ITEM: Final = 96 * 1024  # bytes of one item, as sent
MAX_DEAD_LETTER_IDS: Final = 500
MAX_REPLAY_JOB_SIZE: Final = 100_000  # dead letters of one replay; those that died first
MAX_REPLAY_RATE: Final = 1_000.0  # replays a second
MAX_BACKFILL: Final = 1000  # runs of one command
MAX_BULK_SCHEDULES: Final = 10_000  # schedules of one command


class SchedulePut(Definition, CommandBase):
    """Create a schedule, or replace it when `expected_version` is its version or "any".

    Without `when`, the tenant's default applies. With `effective_at`, the version in force stays
    until then.
    """

    when: When | None = None  # type: ignore[assignment]  # intake fills in the tenant's default
    expected_version: Count | Literal["any"] | None = None
    effective_at: Instant | None = None
    note: ShortText | None = None

    @property
    def definition(self) -> Definition:
        """Itself, complete; raises `Malformed` without `when`."""
        if self.when is None:
            raise InvalidInput("is required", field="when", code="missing_field")
        return self


class ScheduleCommand(CommandBase):
    """A command to one existing schedule, by key or by id, exactly one."""

    key: ShortText | None = None
    id: UUID | None = None
    note: ShortText | None = None

    @model_validator(mode="after")
    def _one_name(self) -> "ScheduleCommand":
        if (self.key is None) == (self.id is None):
            raise invalid("invalid_reference", "has exactly one of key, id")
        return self


class ScheduleFilter(StrictMessage):
    """Schedules of the tenant that match all of what is given, at least one of it."""

    tag: ShortText | None = None
    owner: ShortText | None = None
    name: ShortText | None = None
    state: ShortText | None = None

    @model_validator(mode="after")
    def _something(self) -> "ScheduleFilter":
        if not self.model_fields_set:
            raise invalid("invalid_filter", "has at least one of tag, owner, name, state")
        return self


class BulkCommand(ScheduleCommand):
    """Or to many at once: those that a selector matches, or (resume) that a receipt names."""

    select: ScheduleFilter | None = None
    bulk_operation_id: ShortText | None = None

    @model_validator(mode="after")
    def _one_name(self) -> "BulkCommand":
        named = [self.key, self.id, self.select, self.bulk_operation_id]
        if sum(name is not None for name in named) != 1:
            raise invalid(
                "invalid_reference", "has exactly one of key, id, select, bulk_operation_id"
            )
        return self


class SchedulePatch(ScheduleCommand):
    """`set` is a JSON merge patch (RFC 7396) of the definition: null goes back to the default."""

    set_: dict[str, CheckedJson] = Field(alias="set")
    expected_version: Count | None = None
    effective_at: Instant | None = None


class SchedulePause(BulkCommand):
    """No run is made until `schedule.resume`, or until `until`."""

    until: Instant | None = None


class ScheduleResume(BulkCommand):
    """The catch-up policy decides about what was missed."""


class ScheduleCancel(BulkCommand):
    """For good; also cancels what waits for a retry."""


class ScheduleTrigger(ScheduleCommand):
    """One run now, beside the timetable. `overlap` is in place of the schedule's own."""

    overlap: Overlap | None = None


class ScheduleSkip(ScheduleCommand):
    """The run of one instant will not be."""

    at: Instant


class ScheduleBackfill(ScheduleCommand):
    """The runs that the timetable had from `from` to `to`, inclusive; those on record stay."""

    from_: Instant = Field(alias="from")
    to: Instant
    max: Annotated[Count, Field(le=MAX_BACKFILL)] = 100
    dry_run: bool = False


class RunCancel(CommandBase):
    """A run that has not started will not; one that runs is asked to stop."""

    run_id: ShortText
    note: ShortText | None = None


class Resolution(StrEnum):
    """What a person says became of a held run."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    RETRY = "retry"


class RunResolve(CommandBase):
    """Ends the hold of a run, and of its schedule if it was the last one."""

    run_id: ShortText
    as_: Resolution = Field(alias="as")
    note: ShortText | None = None


class DeadLetterCommand(CommandBase):
    ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)]
    note: ShortText | None = None


class DeadLetterReplay(DeadLetterCommand):
    """Run each again, as a new series of the same run."""


class DeadLetterDiscard(DeadLetterCommand):
    """Take each off the desk; the record stays."""


class DeadLetterEdit(CommandBase):
    """Put a copy in a dead letter's place, whose replay calls another target, or with other data.

    The letter stays on record, and the copy tells of it.
    """

    id: UUID
    target: Target
    note: ShortText | None = None


class DeadLetterImport(CommandBase):
    """Keep letters that `dlq.show` told, here or elsewhere; those that are kept already stay."""

    dead_letters: Annotated[
        list[ExportedDeadLetter], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)
    ]
    note: ShortText | None = None


class ReplayJobStart(CommandBase):
    """Replay dead letters little by little: those that are open now, and no others.

    `canary`: so many first, and no more if one of them fails. `rate`: at most so many a second.
    `abort_on_failure_ratio`: no more once that part of those that ended has failed.
    """

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)] | None = None
    select: OpenDeadLetterFilter | None = None
    canary: Annotated[Count, Field(le=MAX_REPLAY_JOB_SIZE)] | None = None
    rate: Annotated[float, Field(gt=0, le=MAX_REPLAY_RATE)] | None = None
    abort_on_failure_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    pool: PoolName | None = None  # in place of that of their schedules
    dry_run: bool = False
    note: ShortText | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "ReplayJobStart":
        if (self.ids is None) == (self.select is None):
            raise invalid("invalid_reference", "has exactly one of ids, select")
        return self


class ReplayJobCommand(CommandBase):
    """To a replay that `dlq.start` began."""

    id: UUID
    note: ShortText | None = None


class ReplayJobPause(ReplayJobCommand):
    """No more are replayed until `dlq.resume`."""


class ReplayJobResume(ReplayJobCommand):
    """Goes on where it was paused."""


class ReplayJobAbort(ReplayJobCommand):
    """No more are replayed, for good; the rest stays open."""


class GroupCommand(CommandBase):
    """To groups of failures, as `dlq.groups` shows them."""

    groups: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DEAD_LETTER_IDS)]
    note: ShortText | None = None


class GroupNote(GroupCommand):
    """Write a note on each group, in place of the one before."""

    note: ShortText


class GroupMute(GroupCommand):
    """Its letters ask for nobody until then; they are kept all the same."""

    until: Instant


class GroupArchive(GroupCommand):
    """Put each group away until it fails again; its letters stay as they are."""


class GroupReopen(GroupCommand):
    """Neither muted nor archived any more."""


SCHEDULE_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "schedule.put": SchedulePut,
    "schedule.patch": SchedulePatch,
    "schedule.pause": SchedulePause,
    "schedule.resume": ScheduleResume,
    "schedule.cancel": ScheduleCancel,
    "schedule.trigger": ScheduleTrigger,
    "schedule.skip": ScheduleSkip,
    "schedule.backfill": ScheduleBackfill,
    "run.cancel": RunCancel,
    "run.resolve": RunResolve,
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
    **DEAD_LETTER_COMMANDS,
    **BREAKER_COMMANDS,
}
