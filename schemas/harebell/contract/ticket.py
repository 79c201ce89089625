"""The ticket: one run on its way to an executor, complete in itself."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter

from harebell.contract.amqp_names import Lane
from harebell.contract.downstream import downstream_of
from harebell.contract.ids import RunId, RunKey
from harebell.contract.json_codec import list_adapter
from harebell.contract.message import Message
from harebell.contract.policy import OnUnknown, Overlap, RateLimit, RecoveryClass, RetryPolicy
from harebell.contract.target import Target
from harebell.contract.types import AttemptTimeout, Instant

# In a run's override: in place of its version's.
OVERRIDE_OVERLAP: Final = "overlap"
OVERRIDE_TARGET: Final = "target"  # of a dead letter that was edited

_TARGET: Final[TypeAdapter[Target]] = TypeAdapter(Target)


class RunSpec(Message):
    """What a version says about doing its runs; the same for all of them.

    Tickets leave out what is as it is here, so no default of version 1 may ever change.
    """

    tenant: str
    key: str | None = None
    class_: RecoveryClass = Field(default=RecoveryClass.NORMAL, alias="class")
    target: Target
    timeout: AttemptTimeout = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    on_unknown: OnUnknown = OnUnknown.RETRY
    overlap: Overlap | None = None  # None: allow
    rate_limit: RateLimit | None = None

    @staticmethod
    def from_definition(tenant: str, definition: Mapping[str, Any]) -> dict[str, Any]:
        """As JSON, of what a definition tells: every hop of a run carries it, without defaults."""
        of_work = {name: value for name, value in definition.items() if name in _TOLD}
        return {"tenant": tenant, **of_work}

    def with_override(self, override: Mapping[str, Any] | None) -> "RunSpec":
        """As a run does it that has a target of its own."""
        if override is None or OVERRIDE_TARGET not in override:
            return self
        return self.model_copy(update={"target": _TARGET.validate_python(override[OVERRIDE_TARGET])})


_TOLD: Final = {field.alias or name for name, field in RunSpec.model_fields.items()} - {"tenant"}


class Ticket(Message):
    """A hint: the ledger's row decides whether it may be claimed."""

    schedule_id: UUID
    scheduled_for: Instant
    due_at: Instant  # of this attempt
    expires_at: Instant | None = None
    seq: PositiveInt  # what the row must say for the claim to hold
    version: PositiveInt
    replay_number: NonNegativeInt = 0
    pool: str
    lane: Lane
    priority: int
    override: dict[str, Any] | None = None
    reserved: bool | None = None  # it has waited for its limit, and comes when it was told to
    run_spec: RunSpec

    @property
    def overlap(self) -> Overlap:
        """The version's, unless this run was given one of its own."""
        own = None if self.override is None else self.override.get(OVERRIDE_OVERLAP)
        return (self.run_spec.overlap or Overlap.ALLOW) if own is None else Overlap(own)

    @property
    def restricts_overlap(self) -> bool:
        return self.overlap is not Overlap.ALLOW

    @property
    def needs_reservation(self) -> bool:
        return self.run_spec.rate_limit is not None and not self.reserved

    @property
    def claim_at_due_time(self) -> bool:
        """And not before: only then is it known what it would run over, or whether it may start."""
        return self.restricts_overlap or self.needs_reservation

    @cached_property
    def run_key(self) -> RunKey:
        return RunKey(self.scheduled_for, self.schedule_id)

    @cached_property
    def downstream(self) -> str:
        return downstream_of(self.run_spec.target)

    @cached_property
    def run_id(self) -> RunId:
        return str(self.run_key)


def claim_at_due_time_of_json(ticket: Any) -> bool:  # noqa: ANN401  # decoded JSON
    """The same of a ticket that nobody has checked."""
    try:
        work, override = ticket["run_spec"], ticket.get("override") or {}
        overlap = override.get(OVERRIDE_OVERLAP) or work.get("overlap") or Overlap.ALLOW
        return overlap != Overlap.ALLOW or ("limit" in work and not ticket.get("reserved"))
    except (AttributeError, KeyError, TypeError):
        return False


TICKET_BATCH: TypeAdapter[list[Ticket]] = list_adapter(Ticket)
