"""The services of a world, started again whenever they end, and what machines and networks do."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.fakes.ledger.store import Store
from tests.simulation.bus import Broker
from tests.simulation.fake_broker_client import Link
from tests.simulation.fault_rates import Odds
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process, Trace
from tests.simulation.services import Main, Ports

HANGS_UP: Final = 9.0  # seconds without a heartbeat before a broker lets go of a connection
SHORT: Final = 3.0  # seconds that a process stands still without anybody's noticing
LONG: Final = 35.0  # longer than any lease
AWAY: Final = 6.0  # seconds at most before a service is started again


@dataclass(eq=False)
class Seat:
    """A service; `ports` are those of its present life."""

    name: str
    main: Main
    ports: Ports | None = None
    lives: int = 0


@dataclass
class Crew:
    """`fail` is told of a service that ends by an error of its own."""

    loop: VirtualLoop
    odds: Odds
    store: Store
    broker: Broker
    trace: Trace
    fail: Callable[[str], None]
    seats: list[Seat] = field(default_factory=list)
    is_over: bool = False
    dice: Random = field(init=False)
    _gone: list[Ports] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = self.odds.dice
        self._context = copy_context()  # no process's: what is to happen outlives who caused it

    def end(self) -> None:
        """Whoever stands still or has crashed goes on, for its tasks to end, without effect."""
        self.is_over = True
        self.odds.stop()
        for ports in [*self._gone, *(seat.ports for seat in self.seats if seat.ports is not None)]:
            ports.process.is_over = True
            ports.process.go_on(self.loop)

    def start(self, seat: Seat) -> None:
        if self.is_over:
            return
        seat.lives += 1
        name = f"{seat.name}.{seat.lives}"
        process = Process(
            name, self.odds, self.trace,
            crash=lambda: self._leave(seat), freeze=lambda: self._freeze(seat),
        )  # fmt: skip
        link = Link(self.broker, process)
        seat.ports = Ports(process, self.store, self.broker, link, asyncio.Event())
        self.trace(f"{name} starts")
        task = process.start(seat.main(seat.ports))
        task.add_done_callback(
            lambda ended: self._ended(seat, process, ended), context=self._context
        )

    def _ended(self, seat: Seat, process: Process, task: "asyncio.Task[None]") -> None:
        if process.is_over or seat.ports is None or seat.ports.process is not process:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"{process.name} died: {error!r}")
        self.trace(f"{process.name} has ended")
        self._leave(seat)

    def _leave(self, seat: Seat) -> None:
        """Its connections fall, and what it had not committed; another life begins."""
        if seat.ports is None:
            return
        ports, seat.ports = seat.ports, None
        self._gone.append(ports)
        ports.process.stop()
        ports.link.hang_up()
        self.store.disconnect(ports.process)
        self._later(self.dice.uniform(0, AWAY), self.start, seat)

    def _freeze(self, seat: Seat) -> None:
        if (ports := seat.ports) is None:
            return
        seconds = self.dice.choice([self.dice.uniform(0, SHORT), self.dice.uniform(SHORT, LONG)])
        ports.process.stop()
        if seconds > HANGS_UP:
            self._later(HANGS_UP, ports.link.hang_up)
        self._later(seconds, self._thaw, seat, ports)

    def _thaw(self, seat: Seat, ports: Ports) -> None:
        if seat.ports is ports:
            self.trace(f"{ports.process.name} goes on")
            ports.process.go_on(self.loop)

    def _later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(seconds, callback, *args, context=self._context)

    # what happens whatever the services do

    async def suffer(self) -> None:
        """Until cancelled. Each world knows some kinds of these faults."""
        all_kinds = (self._crash_one, self._freeze_one, self._stop_one, self._cut_one, self._purge)
        kinds = [kind for kind in all_kinds if self.dice.random() < 0.5]
        while kinds:
            await asyncio.sleep(self.dice.uniform(0, 5))
            self.dice.choice(kinds)()

    def _any(self) -> Seat:
        return self.dice.choice(self.seats)

    def _crash_one(self) -> None:
        seat = self._any()
        self._happens("killed", seat.name)
        self._leave(seat)

    def _freeze_one(self) -> None:
        seat = self._any()
        self._happens("stopped for a while", seat.name)
        self._freeze(seat)

    def _stop_one(self) -> None:
        seat = self._any()
        if seat.ports is not None:
            self._happens("told to stop", seat.name)
            seat.ports.process.soon(seat.ports.stop.set)

    def _cut_one(self) -> None:
        seat = self._any()
        if seat.ports is not None:
            self._happens("cut off from the broker", seat.name)
            seat.ports.link.hang_up()

    def _purge(self) -> None:
        names = [name for name in self.broker.queues if ".work." in name or "dispatcher" in name]
        name = self.dice.choice(names)
        self._happens("purged", name)
        self.broker.purge(name)

    def _happens(self, what: str, whose: str) -> None:
        self.odds.happened[what] += 1
        self.trace(f"{whose} is {what}")
