"""What a definition must hold beyond its shape: instants and targets that make sense."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from harebell.contract.errors import Malformed
from harebell.contract.message import shown
from harebell.contract.schedule import Definition
from harebell.contract.target import HttpTarget, Target, TaskTarget
from harebell.kernel.addresses import Network, check_url
from harebell.kernel.soundness import about, check_when


@dataclass(frozen=True, slots=True)
class Callees:
    """What targets may call, as far as this door has been told."""

    networks: Sequence[Network] = ()  # private addresses
    tasks: frozenset[str] | None = None  # None: only executors know


def check_definition(
    definition: Definition, schedule_id: UUID | None, *, accepted_at: datetime, may_call: Callees
) -> None:
    """Raises `Rejected` with the field."""
    check_when(definition.when, schedule_id, now=accepted_at)
    check_target(definition.target, may_call)


def check_target(target: Target, may_call: Callees, field: str = "target") -> None:
    if isinstance(target, HttpTarget):
        with about(f"{field}.http.url"):
            check_url(target.http.url, may_call.networks)
    if isinstance(target, TaskTarget) and may_call.tasks is not None:
        name = target.task.name
        if name not in may_call.tasks:
            reason = f"no executor is known to have a task {shown(name)}"
            raise Malformed(reason, field=f"{field}.task.name", code="unknown_task")
