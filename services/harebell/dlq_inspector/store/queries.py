"""Cold reads: the lists and the details of dead letters and replay jobs."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    any_,
    case,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql import FromClause

from harebell.contract.dead_letter import DeadLetterFilter
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.message import quoted
from harebell.contract.queries import (
    DeadLetterGet,
    DeadLetterList,
    ListQuery,
    ReplayJobGet,
    ReplayJobItems,
    ReplayJobList,
)
from harebell.contract.responses import Page
from harebell.contract.views import (
    DeadLetterDetail,
    DeadLetterView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
)
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.model.views import (
    FIRST_PAGE,
    STORED,
    DeadLetterStateFilter,
    Row,
    dead_letter_detail,
    dead_letter_view,
    replay_item_view,
    replay_job_detail,
    replay_job_view,
)
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState
from harebell.storage.engine import fetch_page, fetch_rows
from harebell.storage.tables import (
    dead_letters,
    replay_items,
    replay_jobs,
    replays,
    runs,
    schedules,
)

MAX_REPLAYS: Final = 100  # replays of one run in a detail, the latest first
MAX_POSITION: Final = 2_000_000_000  # of a replay item, below the limit of an integer column

_RUN_OF_DEAD_LETTER: Final = and_(
    runs.c.scheduled_for == dead_letters.c.scheduled_for,
    runs.c.schedule_id == dead_letters.c.schedule_id,
)
_IS_RESOLVED: Final = and_(
    dead_letters.c.state.not_in([DeadLetterState.DISCARDED, DeadLetterState.SUPERSEDED]),
    runs.c.state == RunState.SUCCEEDED,
)
_SHOWN_STATE: Final = case(
    (_IS_RESOLVED, DeadLetterStateFilter.RESOLVED.value), else_=dead_letters.c.state
)


def filter_conditions(filter_: DeadLetterFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of the given fields only.

    A statement with a condition for every field would have one plan for all filters.
    """
    conditions: Mapping[str, Any] = {
        "group": lambda group: dead_letters.c.group_id == group,
        "key": lambda key: dead_letters.c.key == key,
        "tag": lambda tag: dead_letters.c.schedule_id.in_(
            select(schedules.c.id).where(schedules.c.tags.contains([tag]))
        ),
        "error": lambda error: dead_letters.c.error_code == error,
        "since": lambda since: dead_letters.c.dead_at >= since,
        "until": lambda until: dead_letters.c.dead_at < until,
        "replayed": lambda replayed: _has_replays() == replayed,
    }
