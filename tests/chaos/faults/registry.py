"""The faults by their rows in the matrix: what each is called, and what it may be blamed for."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from string import ascii_letters
from typing import Any, TypeAlias

from tests.chaos.environment import Scene

Strike: TypeAlias = Callable[[Scene], AsyncIterator[None]]


@dataclass(frozen=True)
class Fault:
    """Entered it strikes, left it heals. `lapses`: it may part an executor's effect and record.

    `pause`: seconds that it may hold up a run at most, however long it lasts; None: until it heals.
    """

    row: str  # "6c": the third of row 6
    title: str
    lapses: bool
    strike: Callable[[Scene], AbstractAsyncContextManager[None]]
    recovery: float = 30.0  # seconds, beside the work
    alone: bool = False  # too heavy to strike again and again
    clustered: bool = False  # on three nodes of RabbitMQ
    pause: float | None = None

    @property
    def is_soaked(self) -> bool:
        """A soak has one stack, and that has one broker."""
        return not (self.alone or self.clustered)

    @property
    def number(self) -> int:
        return int(self.row.rstrip(ascii_letters))


FAULTS: dict[str, Fault] = {}


def fault(row: str, title: str, *, lapses: bool = False, **more: Any) -> Callable[[Strike], Strike]:
    """`more`: the other fields of a fault."""

    def register(strike: Strike) -> Strike:
        assert row not in FAULTS, row
        FAULTS[row] = Fault(row, title, lapses, asynccontextmanager(strike), **more)
        return strike

    return register


def chosen(rows: str) -> list[Fault]:
    """`6,10b`: all of row 6 and the second of row 10; nothing: all."""
    wanted = [each.strip() for each in rows.split(",") if each.strip()]
    unknown = [each for each in wanted if each not in FAULTS and each not in _numbers()]
    if unknown:
        raise SystemExit(f"no such rows: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    return [
        each for each in listed() if not wanted or each.row in wanted or str(each.number) in wanted
    ]


def listed() -> list[Fault]:
    """In the order of the matrix."""
    return sorted(FAULTS.values(), key=lambda each: (each.number, each.row))


def _numbers() -> set[str]:
    return {str(each.number) for each in FAULTS.values()}
