"""The ledger in SQL: one conditional statement per transition, held to `kernel.ledger`'s model.

Every statement takes arrays, locks its rows in key order (its arrays are sorted and the plan is a
nested loop over them), adds one to `seq`, and tells what it moved. Conditions stand inside CASE:
a new day's partition has no statistics, and a planner that believes them scans it once a row.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from harebell.contract.ids import RunKey

T = TypeVar("T")


class Keyed(Protocol):
    """What is about one run."""

    @property
    def key(self) -> RunKey: ...


K = TypeVar("K", bound=Keyed)


def in_key_order(several: Iterable[K]) -> list[K]:
    """By key, as every statement locks. Ids are compared as numbers: in a crowd that is quicker."""
    return sorted(several, key=_place)


def _place(one: Keyed) -> tuple[datetime, int]:
    return one.key.scheduled_for, one.key.schedule_id.int


def key_arrays(keys: Iterable[RunKey]) -> tuple[list[datetime], list[UUID]]:
    """Run keys as array parameters, in the order given."""
    ordered = list(keys)
    return [key.scheduled_for for key in ordered], [key.schedule_id for key in ordered]


def nullable_array(values: Iterable[T | None]) -> list[T | None]:
    """As an array parameter of an `unnest` of several, which fills short ones up with nulls.

    So of nothing but nulls it is empty: the driver spends more on each value than we do.
    """
    listed = list(values)
    return [] if listed.count(None) == len(listed) else listed
