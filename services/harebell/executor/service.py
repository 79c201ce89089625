"""The executor's shell: lanes that claim and run, one settler, leases, an orderly end."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from harebell.contract.codec import read
from harebell.contract.errors import Transient
from harebell.contract.identity import RunKey
from harebell.contract.names import Lane
from harebell.contract.ticket import BUNDLE, Ticket
from harebell.executor.claiming import Claimer
from harebell.executor.core import Claimed, lease_of
from harebell.executor.leases import Leases, keep_presence
from harebell.executor.running import LaneRunner
from harebell.executor.settling import Settler
from harebell.executor.targets.amqp import open_amqp
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.perform import Targets
from harebell.executor.targets.registry import installed_tasks
from harebell.executor.targets.task import TaskTargets
from harebell.kernel.amqp.bundle import waiting
from harebell.kernel.amqp.consume import ABANDONED, DONE, Delivery, Outcome
from harebell.kernel.amqp.session import Concurrent, Consumer
from harebell.kernel.bus import SYSTEM, work_queue, work_topology
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.db.ledger import claims
from harebell.kernel.lifecycle import Parts, open_parts, properties, run_until
from harebell.kernel.routing import Routed
from harebell.kernel.settings import ExecutorSettings

PREFETCH: Final = 30  # bundles of one lane that wait to be claimed; others may be free for more
HOLDER_BYTES: Final = 4

log = structlog.get_logger()


async def serve(settings: ExecutorSettings, stop: asyncio.Event) -> None:
    topology = SYSTEM + work_topology(settings.pool)
    name = f"{settings.name} calls targets"
    async with (
        open_parts(settings, "executor", stop, topology=topology) as parts,
        HttpTargets(settings.allowed_networks) as http,
        open_amqp(
            settings.amqp_url.get_secret_value(),
            name=name,
            properties=properties("executor", settings.name),
        ) as amqp,
    ):
        task = TaskTargets(installed_tasks())
        try:
            executor = Executor.of(settings, parts, Targets(http, amqp, task))
            await executor.run()
        finally:
            task.close()


@dataclass(slots=True)
class Executor:
    """One process of executors: the lanes of one pool, sharing leases and the settler."""

    settings: ExecutorSettings
    parts: Parts
    holder: str  # made anew at every start: two lives of one name never share a lease
    leases: Leases
    settler: Settler
    lanes: dict[Lane, LaneRunner] = field(default_factory=dict)
    claimers: dict[Lane, Claimer] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ExecutorSettings, parts: Parts, targets: Targets) -> "Executor":
        holder = f"{settings.name}-{secrets.token_hex(HOLDER_BYTES)}"
        leases = Leases(parts.pool)
        settler = Settler(parts.pool, parts.publisher, parts.clock, leases.free)
        executor = cls(settings, parts, holder, leases, settler)
        leases.stop = executor.drop
        slots = {
            Lane.HIGH: settings.slots_high,
            Lane.NORMAL: settings.slots_normal,
            Lane.LOW: settings.slots_low,
        }
        for lane in Lane:
            executor._add(lane, slots[lane], targets)
        return executor

    def _add(self, lane: Lane, slots: int, targets: Targets) -> None:
        runner = self.lanes[lane] = LaneRunner(
            lane,
            slots,
            self.parts.clock,
            targets,
            self.settings.lease.total_seconds(),
            self.leases.renew_one,
            self.settler.settle,
            lambda run: self.leases.free([run]),
        )

        def take(runs: list[Claimed]) -> None:
            self.leases.hold(runs)
            runner.take(runs)

        claimer = self.claimers[lane] = Claimer(
            self.parts.pool,
            self.parts.clock,
            self.holder,
            self._lease,
            runner.room,
            take,
            self._holds,
        )
        runner.on_room = claimer.nudge

    def _lease(self, ticket: Ticket) -> float:
        return lease_of(ticket, self.settings.lease, self.settings.lease_critical)

    def _holds(self, ticket: Ticket) -> bool:
        """A bundle that comes again finds what was claimed of it the first time."""
        held = self.leases.held.get(ticket.run_key)
        return held is not None and held.token > ticket.seq

    async def run(self) -> None:
        consumers = [self._consumer(lane) for lane in Lane]
        for lane, consumer in zip(Lane, consumers, strict=True):
            self.parts.health.check(f"consumes {lane}", partial(_is_consuming, consumer))
        await run_until(
            self.parts.stop,
            consuming=[self._work(consumers)],
            background=[
                self.parts.keep(),
                self.leases.keep(),
                self.settler.run(),
                keep_presence(self.parts.connect, self.holder, self.drop),
                *(claimer.run() for claimer in self.claimers.values()),
                *(runner.run() for runner in self.lanes.values()),
            ],
        )

    def _consumer(self, lane: Lane) -> Consumer:
        claimer = self.claimers[lane]

        async def on_work(delivery: Delivery) -> Outcome:
            claimed = await claimer.claim(read(BUNDLE, delivery.body))
            # once claimed, the ledger's lease is the truth about the work
            return DONE if claimed else ABANDONED

        return Consumer(
            work_queue(self.settings.pool, lane).name,
            self.parts.connect,
            lambda: Concurrent(on_work, self.parts.settler),
            prefetch=PREFETCH,
        )

    async def _work(self, consumers: Sequence[Consumer]) -> None:
        """Consume until stopped; then give back what has not started and end what has."""
        await asyncio.gather(
            self._close_claimers(), *(consumer.run(self.parts.stop) for consumer in consumers)
        )
        for runner in self.lanes.values():
            runner.closing = True
        try:
            await self._release()
        except Transient as error:
            log.warning("not released: the leases will lapse", reason=error.reason)
        grace = self.settings.grace.total_seconds()
        await asyncio.gather(*(runner.drain(grace) for runner in self.lanes.values()))
        await self.settler.flush()

    async def _close_claimers(self) -> None:
        await self.parts.stop.wait()
        for claimer in self.claimers.values():
            claimer.close()

    async def _release(self) -> None:
        """Unstarted runs go back to the dispatchers, no attempt used."""
        runs = {run.key: run for lane in self.lanes.values() for run in lane.heap.waiting()}
        if not runs:
            return
        held = [claims.Held(run.key, run.token) for run in runs.values()]
        with passing_faults():
            async with self.parts.pool.acquire() as connection, connection.transaction():
                released = await claims.release(connection, held)
                again = [
                    Routed.of(runs[key].ticket.model_copy(update={"seq": seq}))
                    for key, seq in released.items()
                ]
                messages = waiting(again, self.parts.clock.now())
                await self.parts.publisher.publish_all(messages)
        self.leases.free(list(runs.values()))
        log.info("released", runs=len(again))

    async def drop(self, keys: Sequence[RunKey]) -> None:
        """Of the runs asked to stop, those that wait for their instant never start."""
        for runner in self.lanes.values():
            wanted = set(keys)
            waiting_ = [run for run in runner.heap.waiting() if run.key in wanted]
            if not waiting_:
                continue
            with passing_faults():
                held = [claims.Held(run.key, run.token) for run in waiting_]
                dropped = await claims.drop(self.parts.pool, held)
            for key in dropped:
                runner.heap.drop(key)
            gone = [run for run in waiting_ if run.key in dropped]
            self.leases.free(gone)
            log.info("dropped", runs=len(gone))


def _is_consuming(consumer: Consumer) -> bool:
    return consumer.is_consuming
