"""What a definition must hold beyond its shape: zones, instants and targets that make sense."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import Malformed, Rejected
from harebell.contract.scalars import duration_text, instant_text
from harebell.contract.schedule import Definition
from harebell.contract.target import HttpTarget
from harebell.contract.when import At, Recurring
from harebell.kernel.addresses import Network, check_url
from harebell.kernel.cron.zones import load_zone
from harebell.kernel.occurrences import bounds, timetable

MAX_PAST: Final = timedelta(hours=1)  # that `at` may lie before acceptance: slow senders, clocks


def check_definition(
    definition: Definition,
    schedule_id: UUID,
    *,
    accepted_at: datetime,
    networks: Sequence[Network],
) -> None:
    """Raises `Rejected` with the field. `networks`: private addresses that may be called."""
    if isinstance(definition.when, At):
        _check_past(definition.when, accepted_at)
    if isinstance(definition.when, Recurring):
        _check_recurring(definition.when)
    with _about("when.cron"):
        timetable(definition, schedule_id, accepted_at)
    if isinstance(definition.target, HttpTarget):
        with _about("target.http.url"):
            check_url(definition.target.http.url, networks)


def _check_past(rule: At, accepted_at: datetime) -> None:
    if accepted_at - rule.at > MAX_PAST:
        reason = f"is over {duration_text(MAX_PAST)} past; now it is {instant_text(accepted_at)}"
        raise Malformed(reason, field="when.at", code="too_late")


def _check_recurring(rule: Recurring) -> None:
    with _about("when.timezone"):
        load_zone(rule.timezone)
    start, end = bounds(rule)
    if start is not None and end is not None and start > end:
        raise Malformed("lies before start", field="when.end", code="invalid_bounds")


@contextmanager
def _about(field: str) -> Iterator[None]:
    """Names the field in what is raised: a rule knows its text, not where it was written."""
    try:
        yield
    except Rejected as error:
        error.field = field
        raise
