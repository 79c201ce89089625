"""The SQL of the ledger, with one conditional statement for each transition.

`tests/contract` compares each statement with the model in `domain/run_states.py`.
Every statement takes arrays, adds 1 to `seq` of each moved run and returns the moved runs.
The arrays are sorted and the query plan is a nested loop, so rows are locked in key order.
The conditions are inside `CASE`, because the partition of a new day has no statistics.
A planner that trusts these statistics scans the partition once for each row.

* staging       new, skipped, unstaged and moved runs, stop requests, tickets from rows
* claims        claims, lease renewals and the return of claimed runs
* delegation    delegated runs and the reports of their workers
* overlap       overlap slots and waiting runs
* label_slots   slots of concurrency labels and waiting runs
* rate_limits   rate limits
* delays        waiting and claimed runs that must start later
* completion    outcomes of attempts
* recovery      lost tickets, overdue runs and expired leases
* replays       dead runs that are staged again
* partitions    statements on single partitions of the ledger
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

import orjson

from harebell.contract.ids import RunKey
from harebell.domain.run_states import Actor, RunState, is_allowed

T = TypeVar("T")


class Keyed(Protocol):
    """A value with the key of one run."""

    @property
    def key(self) -> RunKey: ...


K = TypeVar("K", bound=Keyed)


def in_key_order(items: Iterable[K]) -> list[K]:
    """Sort the items by key, in the order in which every statement locks its rows.

    The comparison of ids as integers is faster than the comparison of UUID objects.
    """
    return sorted(items, key=_sort_key)


def _sort_key(item: Keyed) -> tuple[datetime, int]:
    return item.key.scheduled_for, item.key.schedule_id.int


def key_arrays(keys: Iterable[RunKey]) -> tuple[list[datetime], list[UUID]]:
    """Return two array parameters of a statement, in the order of the keys."""
    ordered = list(keys)
    return [key.scheduled_for for key in ordered], [key.schedule_id for key in ordered]


def sql_list(texts: Iterable[str]) -> str:
    """Return the right side of a comparison in SQL with the values of an enumeration."""
    return f"IN ({', '.join(repr(str(text)) for text in sorted(texts))})"


def before(actor: Actor, after: RunState) -> str:
    """Return the right side of a comparison: the states from which the actor moves to `after`."""
    return sql_list(state for state in RunState if is_allowed(actor, state, after))


def nullable_array(values: Iterable[T | None]) -> list[T | None]:
    """Return an array parameter for an `unnest` of several arrays.

    An array that contains only nulls becomes empty, and `unnest` fills it with nulls (decision 19).
    """
    listed = list(values)
    return [] if listed.count(None) == len(listed) else listed


def progress_text(progress: Mapping[str, Any] | None) -> str | None:
    """Return the parameter of a statement that stores progress, or None without a report."""
    return None if not progress else orjson.dumps(progress).decode()
