"""Whether a rule of `when` makes sense beyond its shape: known zones, real expressions, bounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.types import duration_text, instant_text
from harebell.contract.when import AnyOf, At, CronRule, Recurring, WhenRule
from harebell.domain.cron import Cron
from harebell.domain.cron.timezones import load_timezone
from harebell.domain.recurrence import bounds

MAX_PAST_START: Final = timedelta(
    hours=1
)  # that `at` may lie before acceptance: slow senders, clocks


def check_when(
    when: WhenRule, schedule_id: UUID | None, *, now: datetime, field: str = "when"
) -> None:
    """Raises `Rejected` that names where in `field`, which is where the rule was written."""
    if isinstance(when, At):
        _check_past(when, now, field)
    if isinstance(when, Recurring):
        _check_recurring(when, field)
    if isinstance(when, CronRule):
        _check_cron(when, schedule_id, field)
    if isinstance(when, AnyOf):
        for place, rule in enumerate(when.any_of):
            check_when(rule, schedule_id, now=now, field=f"{field}.any_of[{place}]")


@contextmanager
def naming_field(field: str) -> Iterator[None]:
    """Names the field in what is raised: a rule knows its text, not where it was written."""
    try:
        yield
    except Rejected as error:
        error.field = field
        raise


@contextmanager
def prefixing_field(place: str) -> Iterator[None]:
    """Puts the field of what is raised into the place where all of it was written."""
    try:
        yield
    except Rejected as error:
        error.field = f"{place}.{error.field}" if error.field else place
        raise


def _check_past(rule: At, now: datetime, field: str) -> None:
    if now - rule.at > MAX_PAST_START:
        reason = f"is over {duration_text(MAX_PAST_START)} past; now it is {instant_text(now)}"
        raise InvalidInput(reason, field=f"{field}.at", code="too_late")


def _check_recurring(rule: Recurring, field: str) -> None:
    with naming_field(f"{field}.timezone"):
        load_timezone(rule.timezone)
    start, end = bounds(rule)
    if start is not None and end is not None and start > end:
        raise InvalidInput("lies before start", field=f"{field}.end", code="invalid_bounds")


def _check_cron(rule: CronRule, schedule_id: UUID | None, field: str) -> None:
    with naming_field(f"{field}.cron"):
        Cron.parse(
            rule.cron,
            rule.timezone,
            hash_id=schedule_id,
            dst_gap=rule.dst_gap,
            dst_overlap=rule.dst_overlap,
        )
