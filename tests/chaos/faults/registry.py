"""The registry of faults: their rows in the matrix, their titles and their permitted effects."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from string import ascii_letters
from typing import Any, TypeAlias

from tests.chaos.environment import Environment

Injection: TypeAlias = Callable[[Environment], AsyncIterator[None]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, which begins when a caller enters `inject` and ends when the caller leaves it."""

    row: str  # such as 6c for the third fault of row 6
    title: str
    inject: Callable[[Environment], AbstractAsyncContextManager[None]]
    can_expire_leases: bool = False  # an executor may fail between an effect and its record
    recovery: float = 30.0  # seconds, in addition to the waiting work
    is_heavy: bool = False  # too heavy for a repetition in a soak
    needs_cluster: bool = False  # of three RabbitMQ nodes
    needs_standby: bool = False  # of PostgreSQL, which the fault promotes
    max_delay: float | None = None  # seconds for one run, even during the fault

    @property
    def is_for_soak(self) -> bool:
        """A soak has one stack with one broker and one database."""
        return not (self.is_heavy or self.needs_cluster or self.needs_standby)

    @property
    def number(self) -> int:
        return int(self.row.rstrip(ascii_letters))


FAULTS: dict[str, Fault] = {}


def fault(row: str, title: str, **more: Any) -> Callable[[Injection], Injection]:
    """Return a decorator that registers a fault. `more` contains the other fields of `Fault`."""

    def register(injection: Injection) -> Injection:
        assert row not in FAULTS, row
        FAULTS[row] = Fault(row=row, title=title, inject=asynccontextmanager(injection), **more)
        return injection

    return register


def select_faults(rows: str) -> list[Fault]:
    """Return the faults of rows such as `6,10b`: a whole row, or one fault. Empty selects all."""
    chosen = [each.strip() for each in rows.split(",") if each.strip()]
    known = {*FAULTS, *(str(each.number) for each in FAULTS.values())}
    unknown = [each for each in chosen if each not in known]
    if unknown:
        rows_text = ", ".join(FAULTS)
        raise SystemExit(f"The rows must be among {rows_text}, not {', '.join(unknown)}.")
    return [
        each
        for each in all_faults()
        if not chosen or each.row in chosen or str(each.number) in chosen
    ]


def all_faults() -> list[Fault]:
    """Return all faults in the order of the matrix."""
    return sorted(FAULTS.values(), key=lambda each: (each.number, each.row))
