"""The executor service: the wiring of the lanes, and the shutdown in order."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import structlog

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext, connection_properties, open_service
from harebell.contract.amqp_names import Lane
from harebell.contract.errors import Transient
from harebell.executor.claiming.claimer import Claimer, DirectClaim
from harebell.executor.claiming.overlap import OverlapClaimer
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import Probes, lease_seconds
from harebell.executor.receiver import Claimers, LaneReceiver
from harebell.executor.running.attempts import AttemptSpans, LaneAttempts
from harebell.executor.running.blackouts import Blackouts
from harebell.executor.running.bulkheads import TargetBulkhead, TenantAttempts, TenantBulkhead
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.delegations import Delegations
from harebell.executor.running.leases import LeaseKeeper, consume_control_queue
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.stop_requests import StopRequestHandler
from harebell.executor.running.timers import TimerFactory, best_timer, loop_timer
from harebell.executor.running.unstarted_runs import return_unstarted
from harebell.executor.targets.amqp import open_amqp
from harebell.executor.targets.attempt import PolicyGuard
from harebell.executor.targets.call import Targets
from harebell.executor.targets.call_signer import CallSigner
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import TaskTargets, installed_tasks
from harebell.executor.targets.tenant_tls import TlsContexts
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.topology.bus import SYSTEM, work_queue, work_topology
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.settings import ExecutorSettings
from harebell.runtime.signing_keys import SigningKeys
from harebell.runtime.spans import TracePolicy

# Unclaimed work batches of a lane, whose tickets are claimed by start rank. The work queue keeps
# later batches in the order of their release. Other executors may be able to claim more tickets,
# so an executor must not keep many batches.
PREFETCH: Final = 24
HEARTBEAT: Final = 3  # seconds until RabbitMQ delivers the tickets of a frozen executor to others
INSTANCE_BYTES: Final = 4  # of the random suffix of a lease holder

log = structlog.get_logger()


async def serve(settings: ExecutorSettings, stop: asyncio.Event) -> None:
    """Run an executor until `stop` is set."""
    topology = SYSTEM + work_topology(settings.pool)
    files = SecretFiles(settings.secrets_dir)
    async with (
        open_service(settings, "executor", stop, topology=topology) as context,
        HttpTargets(
            settings.egress,
            context.policies,
            proxy=settings.proxy_url,
            tls=TlsContexts(files),
            connections=settings.slots,
        ) as http,
        open_amqp(
            settings.amqp_url.get_secret_value(),
            name=f"{settings.instance_id} calls targets",
            properties=connection_properties("executor", settings.instance_id),
        ) as amqp,
    ):
        task = TaskTargets(installed_tasks(examples=settings.example_tasks), threads=settings.slots)
        try:
            targets = Targets(
                http=http,
                amqp=amqp,
                task=task,
                secrets=SecretResolver(files),
                signer=CallSigner(SigningKeys(files), lambda: context.policies.current),
            )
            executor = Executor.create(settings, context, targets, timers=best_timer)
            await executor.run()
        finally:
            task.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSteps:
    """The first step of a lane, with its claimers, and the starter of the lane."""

    receiver: LaneReceiver
    starter: LaneStarter


@dataclass(slots=True, kw_only=True)
class Executor:
    """One executor process: the lanes of one pool, and the parts that the lanes share."""

    settings: ExecutorSettings
    context: ServiceContext
    holder: str  # the lease holder; two processes of one instance never share a lease
    claimed_runs: ClaimedRuns
    leases: LeaseKeeper
    completer: Completer
    rate_limiter: RateLimiter
    blackouts: Blackouts
    delegations: Delegations
    lanes: Mapping[Lane, LaneSteps]

    @classmethod
    def create(
        cls,
        settings: ExecutorSettings,
        context: ServiceContext,
        targets: Targets,
        *,
        timers: TimerFactory = loop_timer,
    ) -> "Executor":
        """Build the parts that the lanes share, and then each lane from its last step to its first.

        A run passes through the steps the other way: receive, claim, start, attempt, complete.
        """
        pool, publisher, clock = context.pool, context.publisher, context.clock
        holder = f"{settings.instance_id}-{secrets.token_hex(INSTANCE_BYTES)}"
        claimed_runs, start_guard, policies = ClaimedRuns(), StartGuard(), context.policies
        completer = Completer(
            pool=pool,
            publisher=publisher,
            clock=clock,
            claimed_runs=claimed_runs,
            start_guard=start_guard,
            retry_min_wait=policies.retry_min_wait,
        )
        rate_limiter = RateLimiter(
            pool=pool, publisher=publisher, clock=clock, claimed_runs=claimed_runs
        )
        blackouts = Blackouts(
            pool=pool, publisher=publisher, clock=clock, claimed_runs=claimed_runs
        )
        delegations = Delegations(pool=pool, clock=clock)
        stop_requests = StopRequestHandler(
            pool=pool, publisher=publisher, clock=clock, claimed_runs=claimed_runs
        )
        leases = LeaseKeeper(
            pool=pool,
            claimed_runs=claimed_runs,
            start_guard=start_guard,
            stop_requests=stop_requests,
            publisher=publisher,
            clock=clock,
        )
        make_attempts = partial(
            LaneAttempts,
            leases=leases,
            rate_limiter=rate_limiter,
            blackouts=blackouts,
            delegations=delegations,
            targets=targets,
            guard=PolicyGuard(policies, settings.pool),
            completer=completer,
            claimed_runs=claimed_runs,
            publisher=publisher,
            clock=clock,
        )
        tenant_attempts = TenantAttempts(
            quota=lambda tenant: policies.current.of(tenant).quotas.concurrent_runs
        )
        make_claimer = partial(
            Claimer,
            pool=pool,
            clock=clock,
            holder=holder,
            lease=partial(
                lease_seconds,
                normal=settings.lease.total_seconds(),
                critical=settings.lease_critical.total_seconds(),
            ),
            claimed_runs=claimed_runs,
            start_guard=start_guard,
        )
        direct = DirectClaim(pool, holder)
        overlap = OverlapClaimer(pool=pool, publisher=publisher, clock=clock, holder=holder)

        def build_lane(lane: Lane, slots: int) -> LaneSteps:
            probes = Probes()
            starter = LaneStarter(
                lane=lane,
                slots=slots,
                steady_seconds=settings.lease.total_seconds(),
                bulkhead=TargetBulkhead(
                    slots=slots, max_share=settings.max_target_share * settings.tenant_share
                ),
                tenants=TenantBulkhead(
                    slots=slots, max_share=settings.tenant_share, attempts=tenant_attempts
                ),
                clock=clock,
                attempts=make_attempts(
                    lane=lane,
                    probes=probes,
                    spans=AttemptSpans(TracePolicy(settings.trace, settings.trace_max_wait)),
                ),
                start_guard=start_guard,
                timers=timers,
            )
            stop_requests.watch(starter)
            receiver = LaneReceiver(
                claimers=Claimers(
                    direct=make_claimer(strategy=direct, starter=starter),
                    overlap=make_claimer(strategy=overlap, starter=starter),
                ),
                starter=starter,
                rate_limiter=rate_limiter,
                probes=probes,
                start_guard=start_guard,
                publisher=publisher,
                clock=clock,
            )
            return LaneSteps(receiver=receiver, starter=starter)

        slots_of_lanes = {
            Lane.HIGH: settings.slots_high,
            Lane.NORMAL: settings.slots_normal,
            Lane.LOW: settings.slots_low,
        }
        return cls(
            settings=settings,
            context=context,
            holder=holder,
            claimed_runs=claimed_runs,
            leases=leases,
            completer=completer,
            rate_limiter=rate_limiter,
            blackouts=blackouts,
            delegations=delegations,
            lanes={lane: build_lane(lane, slots) for lane, slots in slots_of_lanes.items()},
        )

    async def run(self) -> None:
        """Consume work batches and run claimed runs until the stop."""
        consumers = {
            work_queue(self.settings.pool, lane).name: self._consumer(lane, steps.receiver)
            for lane, steps in self.lanes.items()
        }
        for queue, consumer in consumers.items():
            self.context.health.check(queue, partial(_is_consuming, consumer))
        await run_until(
            self.context.stop,
            consuming=[self._consume(list(consumers.values()))],
            background=[
                self.context.run(),
                self.leases.run(),
                self.completer.run(),
                self.rate_limiter.run(),
                self.blackouts.run(),
                self.delegations.run(),
                consume_control_queue(
                    self.context.connect,
                    self.holder,
                    self.leases,
                    accepts=self.context.is_from_service,
                ),
                *(claimer.run() for claimer in self._claimers()),
                *(steps.starter.run() for steps in self.lanes.values()),
            ],
        )

    def _consumer(self, lane: Lane, receiver: LaneReceiver) -> Consumer:
        return Consumer(
            work_queue(self.settings.pool, lane).name,
            partial(self.context.connect, HEARTBEAT),
            lambda: ConcurrentWorker(receiver.receive, self.context.acknowledger),
            prefetch=PREFETCH,
            accepts=self.context.is_from_service,
        )

    async def _consume(self, consumers: list[Consumer]) -> None:
        """Consume until the stop, return the unstarted runs and drain the started ones."""
        await asyncio.gather(
            self._close_claimers(), *(consumer.run(self.context.stop) for consumer in consumers)
        )
        for steps in self.lanes.values():
            steps.starter.close()
        try:
            await self._return_unstarted()
        except Transient as error:  # the leases expire, and the rescuer recovers the runs
            log.warning("return of unstarted runs failed", reason=error.reason)
        seconds = self.settings.shutdown_timeout.total_seconds()
        await asyncio.gather(*(steps.starter.drain(seconds) for steps in self.lanes.values()))
        await self.completer.flush()

    async def _close_claimers(self) -> None:
        await self.context.stop.wait()
        for claimer in self._claimers():
            claimer.close()

    async def _return_unstarted(self) -> None:
        queues = (steps.starter.queue.waiting() for steps in self.lanes.values())
        await return_unstarted(
            list(chain.from_iterable(queues)),
            pool=self.context.pool,
            publisher=self.context.publisher,
            clock=self.context.clock,
            claimed_runs=self.claimed_runs,
        )

    def _claimers(self) -> list[Claimer]:
        """Return all claimers, first those without overlap slots."""
        claimers = [steps.receiver.claimers for steps in self.lanes.values()]
        return [*(each.direct for each in claimers), *(each.overlap for each in claimers)]


def _is_consuming(consumer: Consumer) -> bool:
    return consumer.is_consuming
