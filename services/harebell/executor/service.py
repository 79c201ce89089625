"""The executor's shell: lanes that claim and run, one settler, leases, an orderly end."""

import asyncio
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext, connection_properties, open_service
from harebell.contract.amqp_names import Lane
from harebell.contract.errors import Transient
from harebell.contract.json_codec import decode_model
from harebell.contract.ticket import TICKET_BATCH, Ticket
from harebell.executor import metrics
from harebell.executor.claiming.claimer import Claimer
from harebell.executor.claiming.overlap import OverlapClaimer, claim_each_at_due_time
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun, lease_seconds
from harebell.executor.running.leases import LeaseKeeper, consume_control_queue
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.executor.running.target_bulkhead import TargetBulkhead, requeue_ttl
from harebell.executor.running.timers import TimerFactory, best_timer, loop_timer
from harebell.executor.targets.amqp import open_amqp
from harebell.executor.targets.call import Targets
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.task import TaskTargets, installed_tasks
from harebell.messaging.acknowledge import ABANDONED, DONE, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.ticket_batches import TicketHeader, parse_ticket_headers
from harebell.messaging.ticket_messages import batch_body, to_one_delay_queue
from harebell.messaging.topology.bus import SYSTEM, work_queue, work_topology
from harebell.runtime.settings import ExecutorSettings
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.storage.runs import claims

PREFETCH: Final = 12  # bundles of one lane that wait to be claimed; others may be free for more
HEARTBEAT: Final = 3  # seconds: tickets that a frozen executor was handed go to others in three
INSTANCE_BYTES: Final = 4

log = structlog.get_logger()


async def serve(settings: ExecutorSettings, stop: asyncio.Event) -> None:
    topology = SYSTEM + work_topology(settings.pool)
    name = f"{settings.instance_id} calls targets"
    async with (
        open_service(settings, "executor", stop, topology=topology) as parts,
        HttpTargets(settings.allowed_networks, connections=settings.slots) as http,
        open_amqp(
            settings.amqp_url.get_secret_value(),
            name=name,
            properties=connection_properties("executor", settings.instance_id),
        ) as amqp,
    ):
        task = TaskTargets(installed_tasks(), threads=settings.slots)
        try:
            executor = Executor.of(settings, parts, Targets(http, amqp, task), best_timer)
            await executor.run()
        finally:
            task.close()


@dataclass(slots=True)
class Executor:
    """One process of executors: the lanes of one pool, sharing leases and the settler."""

    settings: ExecutorSettings
    parts: ServiceContext
    holder: str  # made anew at every start: two lives of one name never share a lease
    leases: LeaseKeeper
    settler: Completer
    limiter: RateLimiter
    lulls: StartGuard
    lanes: dict[Lane, LaneStarter] = field(default_factory=dict)
    claimers: dict[Lane, Claimer] = field(default_factory=dict)
    overlap_claimers: dict[Lane, Claimer] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: ExecutorSettings,
        parts: ServiceContext,
        targets: Targets,
        alarms: TimerFactory = loop_timer,
    ) -> "Executor":
        holder = f"{settings.instance_id}-{secrets.token_hex(INSTANCE_BYTES)}"
        lulls = StartGuard()
        leases = LeaseKeeper(parts.pool, lulls)
        settler = Completer(parts.pool, parts.publisher, parts.clock, leases.remove, lulls)
        limiter = RateLimiter(parts.pool, parts.publisher, parts.clock, leases.remove)
        executor = cls(settings, parts, holder, leases, settler, limiter, lulls)
        stopping = StopRequestHandler(
            parts.pool, parts.publisher, parts.clock, leases, executor.lanes.values()
        )
        leases.stop = stopping.apply
        slots = {
            Lane.HIGH: settings.slots_high,
            Lane.NORMAL: settings.slots_normal,
            Lane.LOW: settings.slots_low,
        }
        for lane in Lane:
            executor._add(lane, slots[lane], targets, alarms)
        return executor

    def _add(self, lane: Lane, slots: int, targets: Targets, alarms: TimerFactory) -> None:
        runner = self.lanes[lane] = LaneStarter(
            lane,
            slots,
            TargetBulkhead(slots, self.settings.max_target_share),
            self.parts.clock,
            targets,
            self.settings.lease.total_seconds(),
            self.leases.renew_before_start,
            self.settler.complete,
            lambda run: self.leases.remove([run]),
            self.limiter.admit,
            self.lulls,
            alarms,
        )

        def take(runs: list[ClaimedRun]) -> None:
            self.leases.add(runs)
            runner.add(runs)

        lease = partial(
            lease_seconds,
            normal=self.settings.lease.total_seconds(),
            critical=self.settings.lease_critical.total_seconds(),
        )
        own = (self.parts.pool, self.parts.clock, self.holder, lease)
        lane_own = (runner.capacity, take, self._holds, self.lulls)
        claimer = self.claimers[lane] = Claimer(*own, *lane_own)
        turns = OverlapClaimer(self.parts.pool, self.parts.publisher, self.parts.clock, self.holder)
        turn_claimer = Claimer(*own, *lane_own, turns)
        self.overlap_claimers[lane] = turn_claimer

        def on_room() -> None:
            claimer.nudge()
            turn_claimer.nudge()

        runner.capacity_changed = on_room
        self.lulls.next_starts.append(runner.next_start)

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
                self.parts.run(),
                self.leases.run(),
                self.settler.run(),
                self.limiter.run(),
                consume_control_queue(self.parts.connect, self.holder, self.leases),
                *(claimer.run() for claimer in self._all_claimers()),
                *(runner.run() for runner in self.lanes.values()),
            ],
        )

    def _consumer(self, lane: Lane) -> Consumer:
        reading = asyncio.Lock()

        async def on_work(delivery: Delivery) -> Outcome:
            async with reading:  # a bundle in a turn of the loop: between two starts what is due
                await asyncio.sleep(0)
                await self.lulls.wait_until_clear()
                tickets, crowding = self._read(lane, delivery.trusted_body)
            if crowding:
                await self._send_round(crowding)
            claimed = await self._take(lane, tickets)
            # once claimed, the ledger's lease is the truth about the work
            return DONE if claimed else ABANDONED

        return Consumer(
            work_queue(self.settings.pool, lane).name,
            partial(self.parts.connect, HEARTBEAT),
            lambda: ConcurrentWorker(on_work, self.parts.acknowledger),
            prefetch=PREFETCH,
        )

    async def _take(self, lane: Lane, tickets: list[Ticket]) -> bool:
        """Of what has a limit, that which may come now; the rest has been put off."""
        limited = [ticket for ticket in tickets if ticket.needs_reservation]
        if not limited:
            return await self._claim(lane, tickets)

        async def place(ticket: list[Ticket]) -> bool:
            return not await self.limiter.reserve(*ticket) or await self._claim(lane, ticket)

        others = [ticket for ticket in tickets if not ticket.needs_reservation]
        took = [self._claim(lane, others), claim_each_at_due_time(limited, self.parts.clock, place)]
        return all(await asyncio.gather(*took))

    def _read(self, lane: Lane, body: bytes) -> tuple[list[Ticket], list[TicketHeader]]:
        """The tickets of a bundle, apart from those that wait for a crowded target."""
        crowded = self.lanes[lane].saturated_targets()
        if not crowded:
            return decode_model(TICKET_BATCH, body), []
        crowding: list[TicketHeader] = []
        others: list[TicketHeader] = []
        for ticket in parse_ticket_headers(body):
            (crowding if ticket.downstream in crowded else others).append(ticket)
        return decode_model(TICKET_BATCH, batch_body(others)), crowding

    async def _send_round(self, tickets: list[TicketHeader]) -> None:
        """So that they stand in nobody's way here."""
        metrics.TARGET_SATURATED_TICKETS.inc(len(tickets))
        late = self.parts.clock.now() - min(ticket.due_at for ticket in tickets)
        tier = requeue_ttl(late, random.random())  # noqa: S311  # spread, not secrecy
        await self.parts.publisher.publish_all(to_one_delay_queue(tickets, tier))

    async def _claim(self, lane: Lane, tickets: list[Ticket]) -> bool:
        by_turns = [ticket for ticket in tickets if ticket.restricts_overlap]
        if not by_turns:
            return await self.claimers[lane].claim(tickets)
        at_once = [ticket for ticket in tickets if not ticket.restricts_overlap]
        claims_ = [
            claim_each_at_due_time(by_turns, self.parts.clock, self.overlap_claimers[lane].claim)
        ]
        if at_once:
            claims_.append(self.claimers[lane].claim(at_once))
        return all(await asyncio.gather(*claims_))

    def _all_claimers(self) -> list[Claimer]:
        return [*self.claimers.values(), *self.overlap_claimers.values()]

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
        grace = self.settings.shutdown_timeout.total_seconds()
        await asyncio.gather(*(runner.drain(grace) for runner in self.lanes.values()))
        await self.settler.flush()

    async def _close_claimers(self) -> None:
        await self.parts.stop.wait()
        for claimer in self._all_claimers():
            claimer.close()

    async def _release(self) -> None:
        """Unstarted runs go back to the dispatchers, no attempt used."""
        runs = {run.key: run for lane in self.lanes.values() for run in lane.heap.waiting()}
        if not runs:
            return
        held = [claims.Claim(run.key, run.token, run.attempt) for run in runs.values()]
        own = (self.parts.pool, self.parts.publisher, self.parts.clock)
        async with publishing_transaction(*own) as authority:
            released = await claims.return_unstarted(authority.connection, held)
            again = [
                TicketHeader.of(runs[key].ticket.model_copy(update={"seq": seq}))
                for key, seq in released.items()
            ]
            await authority.publish(again)
        self.leases.remove(list(runs.values()))
        log.info("released", runs=len(again))


def _is_consuming(consumer: Consumer) -> bool:
    return consumer.is_consuming
