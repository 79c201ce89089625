"""The ticket: one run on its way to an executor, complete in itself."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from pydantic import Field, PositiveInt, TypeAdapter

from harebell.contract.codec import bundle_of
from harebell.contract.downstream import downstream_of
from harebell.contract.identity import RunId, RunKey
from harebell.contract.message import Message
from harebell.contract.names import Lane
from harebell.contract.policy import Limit, OnUnknown, Overlap, RecoveryClass, RetryPolicy
from harebell.contract.scalars import AttemptTimeout, Instant
from harebell.contract.target import Target

# In a run's override: in place of its version's.
OVERLAP: Final = "overlap"
TARGET: Final = "target"  # of a dead letter that was edited

_TARGET: Final[TypeAdapter[Target]] = TypeAdapter(Target)


class Work(Message):
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
    limit: Limit | None = None

    @staticmethod
    def told(tenant: str, definition: Mapping[str, Any]) -> dict[str, Any]:
        """As JSON, of what a definition tells: every hop of a run carries it, without defaults."""
        of_work = {name: value for name, value in definition.items() if name in _TOLD}
        return {"tenant": tenant, **of_work}

    def altered(self, override: Mapping[str, Any] | None) -> "Work":
        """As a run does it that has a target of its own."""
        if override is None or TARGET not in override:
            return self
        return self.model_copy(update={"target": _TARGET.validate_python(override[TARGET])})


_TOLD: Final = {field.alias or name for name, field in Work.model_fields.items()} - {"tenant"}


class Ticket(Message):
    """A hint: the ledger's row decides whether it may be claimed."""

    schedule_id: UUID
    scheduled_for: Instant
    due_at: Instant  # of this attempt
    expires_at: Instant | None = None
    seq: PositiveInt  # what the row must say for the claim to hold
    version: PositiveInt
    series: PositiveInt = 1
    pool: str
    lane: Lane
    priority: int
    override: dict[str, Any] | None = None
    placed: bool | None = None  # it has waited for its limit, and comes when it was told to
    work: Work

    @property
    def overlap(self) -> Overlap:
        """The version's, unless this run was given one of its own."""
        own = None if self.override is None else self.override.get(OVERLAP)
        return (self.work.overlap or Overlap.ALLOW) if own is None else Overlap(own)

    @property
    def takes_turns(self) -> bool:
        return self.overlap is not Overlap.ALLOW

    @property
    def waits_for_its_limit(self) -> bool:
        return self.work.limit is not None and not self.placed

    @property
    def is_claimed_when_due(self) -> bool:
        """And not before: only then is it known what it would run over, or whether it may start."""
        return self.takes_turns or self.waits_for_its_limit

    @cached_property
    def run_key(self) -> RunKey:
        return RunKey(self.scheduled_for, self.schedule_id)

    @cached_property
    def downstream(self) -> str:
        return downstream_of(self.work.target)

    @cached_property
    def run_id(self) -> RunId:
        return str(self.run_key)


def is_claimed_when_due_in(ticket: Any) -> bool:  # noqa: ANN401  # decoded JSON
    """The same of a ticket that nobody has checked."""
    try:
        work, override = ticket["work"], ticket.get("override") or {}
        overlap = override.get(OVERLAP) or work.get("overlap") or Overlap.ALLOW
        return overlap != Overlap.ALLOW or ("limit" in work and not ticket.get("placed"))
    except (AttributeError, KeyError, TypeError):
        return False


BUNDLE: TypeAdapter[list[Ticket]] = bundle_of(Ticket)
