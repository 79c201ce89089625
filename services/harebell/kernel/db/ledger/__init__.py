"""The ledger in SQL: one conditional statement per transition, held to `kernel.ledger`'s model.

Every statement takes arrays, locks its rows in key order (its arrays are sorted and the plan is a
nested loop over them), adds one to `seq`, and tells what it moved. Conditions stand inside CASE:
a new day's partition has no statistics, and a planner that believes them scans it once a row.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from harebell.contract.identity import RunKey

T = TypeVar("T")


def columns(keys: Iterable[RunKey]) -> tuple[list[datetime], list[UUID]]:
    """Run keys as array parameters, in the order given."""
    ordered = list(keys)
    return [key.scheduled_for for key in ordered], [key.schedule_id for key in ordered]


def column(values: Iterable[T | None]) -> list[T | None]:
    """As an array parameter of an `unnest` of several, which fills short ones up with nulls.

    So of nothing but nulls it is empty: the driver spends more on each value than we do.
    """
    listed = list(values)
    return [] if listed.count(None) == len(listed) else listed
