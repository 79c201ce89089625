"""What a definition must hold beyond its shape: instants and targets that make sense."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.schedule import Definition
from harebell.contract.target import HttpTarget, Target, TaskTarget
from harebell.kernel.addresses import Network, check_url
from harebell.kernel.soundness import check_when, naming_field


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """What targets may call, as far as this door has been told."""

    networks: Sequence[Network] = ()  # private addresses
    tasks: frozenset[str] | None = None  # None: only executors know


def check_definition(
    definition: Definition,
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    may_call: TargetPolicy,
) -> None:
    """Raises `Rejected` with the field."""
    check_when(definition.when, schedule_id, now=accepted_at)
    check_target(definition.target, may_call)


def check_target(target: Target, may_call: TargetPolicy, field: str = "target") -> None:
    if isinstance(target, HttpTarget):
        with naming_field(f"{field}.http.url"):
            check_url(target.http.url, may_call.networks)
    if isinstance(target, TaskTarget) and may_call.tasks is not None:
        name = target.task.name
        if name not in may_call.tasks:
            reason = f"no executor is known to have a task {quoted(name)}"
            raise InvalidInput(reason, field=f"{field}.task.name", code="unknown_task")
