"""The ticket: one run on its way to an executor."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter

from harebell.contract.amqp_names import Lane
from harebell.contract.calendar import PinnedCalendar
from harebell.contract.downstream import downstream_of
from harebell.contract.ids import RunId, RunKey
from harebell.contract.json_codec import list_adapter
from harebell.contract.message import Message, empty_default
from harebell.contract.policy import (
    Concurrency,
    OnUnknown,
    Overlap,
    RateLimit,
    RecoveryClass,
    RetryPolicy,
)
from harebell.contract.target import Target
from harebell.contract.trace import TraceContext, TraceOrigin
from harebell.contract.types import AttemptTimeout, Instant

# Fields of the override of a run, which replace those of its version.
OVERRIDE_OVERLAP: Final = "overlap"
OVERRIDE_TARGET: Final = "target"  # of an edited dead letter
OVERRIDE_TRACE: Final = "trace"  # of the command that made or replayed the run

_TARGET: Final[TypeAdapter[Target]] = TypeAdapter(Target)


class RunSpec(Message):
    """The part of a version that an executor needs, which is the same for all its runs.

    Tickets omit fields that have their default, so a default of version 1 must never change.
    """

    tenant: str
    key: str | None = None
    class_: RecoveryClass = Field(default=RecoveryClass.NORMAL, alias="class")
    target: Target
    timeout: AttemptTimeout = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    on_unknown: OnUnknown = OnUnknown.RETRY
    overlap: Overlap | None = None  # null means allow
    rate_limit: RateLimit | None = None
    concurrency: Concurrency | None = None
    blackouts: list[PinnedCalendar] = empty_default(list)  # within which no attempt starts
    sign: list[str] = empty_default(list)  # the names of the signing keys
    trace: TraceOrigin | None = None  # of the command that made the version

    @staticmethod
    def from_definition(
        tenant: str, definition: Mapping[str, Any], *, trace: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the run spec of a definition in JSON. Both omit defaults.

        `trace` is the JSON of the `TraceOrigin`.
        """
        fields = {name: value for name, value in definition.items() if name in _DEFINITION_FIELDS}
        run_spec = {"tenant": tenant, **fields}
        if blackouts := _blackouts_of(definition):
            run_spec["blackouts"] = blackouts
        return run_spec if trace is None else {**run_spec, "trace": trace}

    def with_override(self, override: Mapping[str, Any] | None) -> "RunSpec":
        """Return the run spec with the target of the override, if the override has one."""
        if override is None or OVERRIDE_TARGET not in override:
            return self
        target = _TARGET.validate_python(override[OVERRIDE_TARGET])
        return self.model_copy(update={"target": target})


_DEFINITION_FIELDS: Final = {
    field.alias or name for name, field in RunSpec.model_fields.items()
} - {"tenant", "trace", "blackouts"}


def _blackouts_of(definition: Mapping[str, Any]) -> list[Any]:
    """Return the pinned calendars that hold back the starts of a definition in JSON."""
    names = definition.get("calendars", {}).get("blackout", ())
    return [each for each in definition.get("pinned_calendars", ()) if each["name"] in names]


class Ticket(Message):
    """One run for one executor. The row of the run decides whether a claim succeeds."""

    schedule_id: UUID
    scheduled_for: Instant
    due_at: Instant  # of the next attempt
    expires_at: Instant | None = None
    seq: PositiveInt  # the sequence number that the row must have
    version: PositiveInt
    replay_number: NonNegativeInt = 0
    pool: str
    lane: Lane
    priority: int
    override: dict[str, Any] | None = None
    reserved: bool | None = None  # the run has waited for its reservation
    previous_trace: str | None = None  # the traceparent of the previous attempt
    run_spec: RunSpec

    @property
    def origin(self) -> TraceOrigin | None:
        """Return the trace of the command that made the run, or else its version."""
        override = None if self.override is None else self.override.get(OVERRIDE_TRACE)
        return self.run_spec.trace if override is None else TraceOrigin.model_validate(override)

    @property
    def previous_attempt(self) -> TraceContext | None:
        """Return the trace of the previous attempt, if its span was recorded."""
        return None if self.previous_trace is None else TraceContext(self.previous_trace)

    @property
    def overlap(self) -> Overlap:
        """Return the overlap policy of the override, or else that of the version."""
        override = None if self.override is None else self.override.get(OVERRIDE_OVERLAP)
        return (self.run_spec.overlap or Overlap.ALLOW) if override is None else Overlap(override)

    @property
    def restricts_overlap(self) -> bool:
        """Return whether other runs of the schedule may delay or prevent the run."""
        return self.overlap is not Overlap.ALLOW

    @property
    def needs_slot(self) -> bool:
        """Return whether the run needs an overlap slot or a slot of its label."""
        return self.restricts_overlap or self.run_spec.concurrency is not None

    @property
    def needs_reservation(self) -> bool:
        """Return whether the rate limit must still assign a start time."""
        return self.run_spec.rate_limit is not None and not self.reserved

    @property
    def claim_at_due_time(self) -> bool:
        """Return whether the executor must not claim the run before its due time.

        Only at the due time are the running runs and the earlier starts known.
        """
        return self.needs_slot or self.needs_reservation

    @cached_property
    def run_key(self) -> RunKey:
        """Return the primary key of the run."""
        return RunKey(self.scheduled_for, self.schedule_id)

    @cached_property
    def downstream(self) -> str:
        """Return the name of the downstream that the run calls."""
        return downstream_of(self.run_spec.target)

    @cached_property
    def run_id(self) -> RunId:
        """Return the id of the run."""
        return str(self.run_key)


def claim_at_due_time_of_json(ticket: Any) -> bool:  # noqa: ANN401  # decoded JSON
    """Return `Ticket.claim_at_due_time` for unchecked JSON, or false for an invalid ticket."""
    try:
        run_spec, override = ticket["run_spec"], ticket.get("override") or {}
        overlap = override.get(OVERRIDE_OVERLAP) or run_spec.get("overlap") or Overlap.ALLOW
        needs_reservation = "rate_limit" in run_spec and not ticket.get("reserved")
        has_label = "concurrency" in run_spec
    except (AttributeError, KeyError, TypeError):
        return False
    return needs_reservation or has_label or bool(overlap != Overlap.ALLOW)


TICKET_BATCH: TypeAdapter[list[Ticket]] = list_adapter(Ticket)
