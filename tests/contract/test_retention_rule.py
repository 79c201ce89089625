"""The rule of the retention in SQL against its pure form, for each combination of columns."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from harebell.domain.run_states import OPEN, RunState
from harebell.storage.engine import open_pool
from harebell.ticker.model.retention import (
    MIN_AGE_OF_END,
    ONE_DAY,
    Ages,
    KeepRule,
    StoredRun,
    keep_rule,
    start_of,
)
from harebell.ticker.store import retention as store

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("S118")]

DAYS_AGO: Final = 20  # of the examined day, which some of the tenants still keep
# The tenants of the day: one with the default, one with a shorter and one with a longer retention.
AGES: Final = Ages(
    default=timedelta(days=DAYS_AGO - 5),
    tenants={"brief": timedelta(days=2), "long": timedelta(days=DAYS_AGO + 5)},
)
TENANTS: Final = ("acme", "brief", "long")
MICROSECOND: Final = timedelta(microseconds=1)
# The ends of runs before now. The first ones are just younger, exactly as old and just older than
# the minimum. None is a run that has not ended.
END_AGES: Final = (
    MIN_AGE_OF_END - MICROSECOND,
    MIN_AGE_OF_END,
    MIN_AGE_OF_END + MICROSECOND,
    timedelta(days=DAYS_AGO),
    None,
)
# The ends of skipped ranges relative to the default cutoff. None is a run without a range.
RANGE_ENDS: Final = (-MICROSECOND, timedelta(), timedelta(days=1), None)
# The dead letters of a run: (state, tenant, status and outcome of the replay item).
LETTERS: Final[tuple[tuple[str, bool, tuple[str, str | None] | None] | None, ...]] = (
    None,
    ("open", True, None),
    ("discarded", True, None),
    ("replayed", True, ("replayed", None)),
    ("replayed", True, ("replayed", "succeeded")),
    ("replayed", True, ("skipped", None)),
    ("open", False, None),  # of another tenant
)
NEEDED: Final = frozenset({1, 3})  # the indexes of the dead letters that need their run

INSERT_RUN: Final = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  due_at, range_until, finished_at)
VALUES ($1, $2, $3, 1, 1, 'default', 'normal', 5, $4, $1, $5, $6)
"""
INSERT_LETTER: Final = """
INSERT INTO dead_letters (id, tenant, kind, schedule_id, scheduled_for, replay_number, reason,
    attempts, dead_at, state, payload, group_id, is_imported)
VALUES ($1, $2, 'run', $3, $4, 0, 'attempts_exhausted', 1, now(), $5, '{}', $1, false)
"""
INSERT_ITEM: Final = """
INSERT INTO replay_items (job_id, position, dead_letter_id, status, outcome)
VALUES ($1, $2, $3, $4, $5)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run with its dead letter, and the key of its row."""

    at: datetime
    id_: UUID
    letter: int
    run: StoredRun


def cases(now: datetime) -> list[Case]:
    """Return every combination of state, end, range, tenant and dead letter.

    Omit the runs that have not ended and have an end, because no transition writes them.
    """
    day = start_of((now - timedelta(days=DAYS_AGO)).date())
    cutoff = AGES.cutoffs(now).default
    found = []
    combinations = product(RunState, END_AGES, RANGE_ENDS, TENANTS, range(len(LETTERS)))
    for number, (state, end, range_end, tenant, letter) in enumerate(combinations):
        if state in OPEN and end is not None:
            continue
        at = day + number * timedelta(milliseconds=1)
        run = StoredRun(
            tenant=tenant,
            state=state,
            scheduled_for=at,
            range_until=None if range_end is None else cutoff + range_end,
            finished_at=None if end is None else now - end,
            is_needed=letter in NEEDED,
        )
        found.append(Case(at=at, id_=UUID(int=number + 1), letter=letter, run=run))
    return found


async def insert(connection: asyncpg.Connection, found: list[Case]) -> None:
    """Insert the runs and their dead letters with a few statements."""
    await connection.executemany(
        INSERT_RUN,
        [
            (e.at, e.id_, e.run.tenant, e.run.state, e.run.range_until, e.run.finished_at)
            for e in found
        ],
    )
    letters: list[tuple[object, ...]] = []
    items: list[tuple[object, ...]] = []
    for each in found:
        letter = LETTERS[each.letter]
        if letter is not None:
            state, is_own, item = letter
            tenant = each.run.tenant if is_own else "stranger"
            letters.append((each.id_, tenant, each.id_, each.at, state))
            if item is not None:
                items.append((UUID(int=1), len(items), each.id_, *item))
    await connection.executemany(INSERT_LETTER, letters)
    await connection.executemany(INSERT_ITEM, items)


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url, server_settings={"timezone": "UTC"})
    yield connection
    await connection.close()


async def test_sql_removes_exactly_the_runs_that_the_pure_rule_permits(
    owner: asyncpg.Connection,
) -> None:
    async with owner.transaction():  # one `now()` for the rows, for the SQL and for the rule
        now: datetime = await owner.fetchval("SELECT now()")
        found = cases(now)
        await insert(owner, found)
        day, cutoffs = found[0].at.date(), AGES.cutoffs(now)
        rules = {(e.at, e.id_): keep_rule(e.run, cutoffs, now=now) for e in found}

        after, held, removed = (start_of(day) - ONE_DAY, store.FIRST_ID), 0, 0
        while True:
            removal = await store.remove_runs(owner, day, cutoffs, after=after, limit=500)
            held, removed = held + removal.held, removed + removal.runs
            if removal.last is None:
                break
            after = removal.last
        rows = await owner.fetch("SELECT scheduled_for, schedule_id FROM runs")

    kept = {key for key, rule in rules.items() if rule is not None}
    assert {tuple(row) for row in rows} == kept
    assert removed == len(found) - len(kept) > 0
    assert held == sum(rule not in {None, KeepRule.AGE} for rule in rules.values())
    assert {*rules.values()} == {None, *KeepRule}


async def test_sql_finds_a_kept_run_exactly_where_the_pure_rule_keeps_one(
    owner: asyncpg.Connection, database_url: str
) -> None:
    """The statement decides about a whole partition, and reads each run in its own range."""
    now: datetime = await owner.fetchval("SELECT now()")
    # The ends just beside the minimum age would change their rule during the test.
    found = [each for each in cases(now) if _is_stable(each, now)][::17]
    await insert(owner, found)
    day, cutoffs = found[0].at.date(), AGES.cutoffs(now)
    expected = [keep_rule(each.run, cutoffs, now=now) is not None for each in found]

    async with open_pool(database_url, name="test") as pool:
        answers = [
            await store.has_kept_run(
                pool, day, cutoffs, since=each.at, until=each.at + timedelta(milliseconds=1)
            )
            for each in found
        ]

    assert answers == expected
    assert {*expected} == {True, False}


def _is_stable(case: Case, now: datetime) -> bool:
    end = case.run.finished_at
    return end is None or now - end > MIN_AGE_OF_END + timedelta(days=1)


@pytest.mark.parametrize(
    ("columns", "letter"),
    [
        ({}, 0),
        ({"state": RunState.RUNNING, "finished_at": None}, 0),
        ({"state": RunState.STAGED, "finished_at": None}, 0),
        ({"state": RunState.DEAD}, 1),
        ({"state": RunState.DEAD}, 2),
    ],
)
async def test_function_detaches_a_day_only_if_no_run_is_open_or_needed(
    owner: asyncpg.Connection, database_url: str, columns: dict[str, Any], letter: int
) -> None:
    """The function decides again under its locks, after the examination of the day."""
    now = datetime.now(UTC)
    at = start_of((now - timedelta(days=DAYS_AGO)).date())
    fields: dict[str, Any] = {
        "tenant": "brief",
        "state": RunState.SUCCEEDED,
        "scheduled_for": at,
        "finished_at": at,
        "is_needed": letter in NEEDED,
    }
    run = StoredRun(**(fields | columns))
    await insert(owner, [Case(at=at, id_=UUID(int=1), letter=letter, run=run)])

    async with open_pool(database_url, name="test") as pool:
        number = await store.retire_day(pool, at.date(), needs_archive=False)

    is_kept = keep_rule(run, AGES.cutoffs(now), now=now) is not None
    assert (number is None) == is_kept
