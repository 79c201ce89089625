"""What a definition must hold beyond its shape: instants and targets that make sense."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from harebell.contract.schedule import Definition
from harebell.contract.target import HttpTarget, Target
from harebell.kernel.addresses import Network, check_url
from harebell.kernel.soundness import about, check_when


def check_definition(
    definition: Definition,
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    networks: Sequence[Network],
) -> None:
    """Raises `Rejected` with the field. `networks`: private addresses that may be called."""
    check_when(definition.when, schedule_id, now=accepted_at)
    check_target(definition.target, networks)


def check_target(target: Target, networks: Sequence[Network], field: str = "target") -> None:
    if isinstance(target, HttpTarget):
        with about(f"{field}.http.url"):
            check_url(target.http.url, networks)
