"""Commands: what services and operators ask for, by verb. Unknown fields are refused."""

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field, model_validator

from harebell.contract.message import Command, fault
from harebell.contract.scalars import Count, ShortText, Tenant
from harebell.contract.schedule import Definition

MAX_ITEMS: Final = 500  # of one message
MAX_BODY: Final = 1024 * 1024  # bytes of one message
MAX_ITEM: Final = 96 * 1024  # bytes of one item, as sent
MAX_DLQ_IDS: Final = 500


class Addressed(Command):
    """What every command may carry. The routing key's tenant decides; a body may repeat it.

    `request_id` makes a retry recognisable; without it the AMQP `message_id` does.
    """

    tenant: Tenant | None = None
    request_id: ShortText | None = None


class SchedulePut(Definition, Addressed):
    """Create a schedule, or replace it when `expected_version` is its version or "any"."""

    expected_version: Count | Literal["any"] | None = None


class ScheduleCommand(Addressed):
    """A command to one existing schedule, by key or by id, exactly one."""

    key: ShortText | None = None
    id: UUID | None = None
    note: ShortText | None = None

    @model_validator(mode="after")
    def _one_name(self) -> "ScheduleCommand":
        if (self.key is None) == (self.id is None):
            raise fault("invalid_reference", "has exactly one of key, id")
        return self


class SchedulePause(ScheduleCommand):
    """No run is made until `schedule.resume`."""


class ScheduleResume(ScheduleCommand):
    """The catch-up policy decides about what was missed."""


class ScheduleCancel(ScheduleCommand):
    """For good; also cancels what waits for a retry."""


class ScheduleTrigger(ScheduleCommand):
    """One run now, beside the timetable."""


class RunCancel(Addressed):
    """A run that has not started will not."""

    run_id: ShortText
    note: ShortText | None = None


class DlqCommand(Addressed):
    ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_DLQ_IDS)]
    note: ShortText | None = None


class DlqReplay(DlqCommand):
    """Run each again, as a new series of the same run."""


class DlqDrop(DlqCommand):
    """Take each off the desk; the record stays."""


SCHEDULE_COMMANDS: Final[dict[str, type[Addressed]]] = {
    "schedule.put": SchedulePut,
    "schedule.pause": SchedulePause,
    "schedule.resume": ScheduleResume,
    "schedule.cancel": ScheduleCancel,
    "schedule.trigger": ScheduleTrigger,
    "run.cancel": RunCancel,
}
DLQ_COMMANDS: Final[dict[str, type[Addressed]]] = {"dlq.replay": DlqReplay, "dlq.drop": DlqDrop}
COMMANDS: Final[dict[str, type[Addressed]]] = {**SCHEDULE_COMMANDS, **DLQ_COMMANDS}
