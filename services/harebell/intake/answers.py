"""Questions into answers: rows of the store as users see them, page by page."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

from harebell.contract.answers import One, Page
from harebell.contract.errors import NotFound
from harebell.intake.queries import Cursor, OneRun, OneSchedule, Question, Runs, Schedules
from harebell.intake.store import Store
from harebell.intake.views import Row, View, attempt_view, run_view, schedule_view


async def find(store: Store, tenant: str, question: Question, *, now: datetime) -> One | Page:
    """Raises `NotFound`: also for what is another tenant's."""
    match question:
        case OneSchedule():
            return await _schedule(store, tenant, question, now)
        case OneRun():
            return await _run(store, tenant, question)
        case Schedules():
            rows = await store.schedules(tenant, question)
            views = [schedule_view(row, now=now) for row in rows]
            return _page(rows, views, question.limit, _created)
        case Runs():
            rows = await store.runs(tenant, question)
            return _page(rows, [run_view(row) for row in rows], question.limit, _scheduled)
        case _:
            assert_never(question)


async def _schedule(store: Store, tenant: str, asked: OneSchedule, now: datetime) -> One:
    row = await store.schedule(tenant, asked.id)
    if row is None:
        raise NotFound("there is no such schedule", field=asked.field)
    return One(item=schedule_view(row, now=now) | {"definition": row["definition"]})


async def _run(store: Store, tenant: str, asked: OneRun) -> One:
    row = await store.run(tenant, asked.key)
    if row is None:
        raise NotFound("there is no such run", field="run_id")
    attempts = await store.attempts(asked.key)
    return One(item=run_view(row) | {"attempts": [attempt_view(each) for each in attempts]})


def _created(row: Row) -> Cursor:
    return Cursor(row["created_at"], row["id"])


def _scheduled(row: Row) -> Cursor:
    return Cursor(row["scheduled_for"], row["schedule_id"])


def _page(
    rows: Sequence[Row],
    views: Sequence[View],
    limit: int,
    place: Callable[[Row], Cursor],
) -> Page:
    """The store reads one row more than was asked for, which tells that there are more."""
    has_more = len(rows) > limit
    return Page(items=list(views[:limit]), next=str(place(rows[limit - 1])) if has_more else None)
