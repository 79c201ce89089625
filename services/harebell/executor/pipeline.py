"""The pipeline of a lane: the steps of a run in the executor, in the order of execution."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg
import structlog
from prometheus_client import Histogram

from harebell.contract.amqp_names import PROBE, Lane
from harebell.contract.json_codec import decode_model
from harebell.contract.ticket import TICKET_BATCH, Ticket
from harebell.domain.retry import EXPIRED, Failure
from harebell.domain.start_rank import start_rank
from harebell.executor import metrics
from harebell.executor.claiming.claimer import Claimer
from harebell.executor.claiming.overlap import claim_each_at_due_time
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun, target_share
from harebell.executor.model.probes import Probes
from harebell.executor.running.attempt_spans import AttemptSpans, describe_outcome, exemplar_of
from harebell.executor.running.blackouts import Blackouts
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.delegations import Delegations
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.target_bulkhead import requeue_ttl
from harebell.executor.targets.attempt import AttemptContext, AttemptOutcome, Delegated, Success
from harebell.executor.targets.call import Targets, call_target
from harebell.executor.targets.policy_guard import PolicyGuard
from harebell.messaging import run_log
from harebell.messaging.acknowledge import ABANDONED, DONE, Delivery, Outcome
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import delegated_event
from harebell.messaging.ticket_batches import TicketHeader, parse_ticket_headers
from harebell.messaging.ticket_messages import batch_body, to_one_delay_queue
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.publishing_transaction import publishing_transaction
from harebell.storage.runs import claims

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Claimers:
    """The claimers of a lane: one without overlap slots, and one with overlap slots."""

    direct: Claimer
    overlap: Claimer


@dataclass(slots=True, kw_only=True)
class LanePipeline:
    """The steps of one lane, in the order in which a run passes through them."""

    lane: Lane
    claimers: Claimers
    starter: LaneStarter
    leases: LeaseKeeper
    rate_limiter: RateLimiter
    blackouts: Blackouts
    delegations: Delegations
    targets: Targets
    guard: PolicyGuard
    completer: Completer
    claimed_runs: ClaimedRuns
    start_guard: StartGuard
    publisher: Publisher
    clock: Clock
    spans: AttemptSpans = field(default_factory=AttemptSpans)
    _probes: Probes = field(default_factory=Probes)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _lateness: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self._lateness = metrics.START_LATENESS.labels(self.lane)

    async def receive(self, delivery: Delivery) -> Outcome:
        """Requeue the tickets of saturated targets and tenants, and claim the other tickets.

        Acknowledge the delivery after the claim, because the leases then protect the runs.
        """
        async with self._reading:  # one batch per iteration of the loop; due runs start in between
            await asyncio.sleep(0)
            await self.start_guard.wait_until_clear()
            tickets, saturated = self._parse(delivery.trusted_body)
            if delivery.message.headers.get(PROBE):
                self._probes.add(tickets)
        if saturated:
            await self._requeue(saturated)
        return DONE if await self.claim(tickets) else ABANDONED

    async def claim(self, tickets: list[Ticket]) -> bool:
        """Reserve the start times of rate limited tickets and claim the rows of the allowed ones.

        Return False if a claimer is closed before that.
        """
        limited = [ticket for ticket in tickets if ticket.needs_reservation]
        if not limited:
            return await self._claim_rows(tickets)
        others = [ticket for ticket in tickets if not ticket.needs_reservation]
        results = await asyncio.gather(
            self._claim_rows(others),
            claim_each_at_due_time(limited, self.clock, self._reserve_and_claim),
        )
        return all(results)

    async def run_attempt(self, run: ClaimedRun) -> None:
        """Renew an old lease, check blackouts and the rate limit, and perform the attempt.

        A worker completes a delegated run. The ledger has the delegation before the call, so a
        worker that is faster than this executor can already complete the run.
        """
        if not (run.is_fresh(monotonic()) or await self.leases.renew_before_start(run)):
            self._give_up(run)
            return
        if run.ticket.run_spec.blackouts and not await self.blackouts.allow(run):
            return
        rate_limit = run.ticket.run_spec.rate_limit
        if rate_limit is not None and not await self.rate_limiter.admit(run):
            return
        if monotonic() >= run.lease_ends:
            self._give_up(run)
            return
        if run.delegation is not None and not await self.delegations.delegate(run):
            self._give_up(run)
            return
        outcome = await self.perform(run)
        if isinstance(outcome, Delegated):
            self._probes.remove(run)
            self.claimed_runs.remove([run])
            event = delegated_event(
                run.ticket, attempt=run.attempt, token=run.token, at=self.clock.now()
            )
            await publish_events(self.publisher, [event])
            return
        if run.progress is not None and not isinstance(outcome, Success):
            await self.leases.save_progress(run)
        self.completer.complete(run, outcome, is_probe=self._probes.remove(run))

    async def perform(self, run: ClaimedRun) -> AttemptOutcome | Delegated:
        """Call the target once within the timeout, in the span of the attempt.

        Return a failure if the run has expired or if the tenant policy forbids it.
        """
        now = self.clock.now()
        run.start(now)
        span = self.spans.start(run, now)
        run_log.log_start(run.ticket, run.attempt, run.trace, at=now)
        lateness = (now - run.ticket.due_at).total_seconds()
        if span is None:
            self._lateness.observe(lateness)
            return await self._call(run, now)
        self._lateness.observe(lateness, exemplar_of(span.context))
        token = span.attach()
        try:
            outcome = await self._call(run, now)
        except asyncio.CancelledError:
            span.fail("cancelled")
            raise
        else:
            describe_outcome(span, outcome)
            return outcome
        finally:
            span.detach(token)
            span.end()

    async def _call(self, run: ClaimedRun, now: datetime) -> AttemptOutcome | Delegated:
        ticket = run.ticket
        if ticket.expires_at is not None and now >= ticket.expires_at:
            return Failure(EXPIRED, "The expiry time of the run has passed.", retryable=False)
        if (refusal := self.guard.refusal(ticket)) is not None:
            return refusal
        await failpoint.reach("executor.before_effect")
        outcome = await call_target(
            ticket.run_spec.target,
            AttemptContext(
                ticket,
                run.attempt,
                run.token,
                started_at=now,
                trace=run.trace,
                checkpoint=run.checkpoint,
                report=run.report,
            ),
            self.targets,
            seconds=ticket.run_spec.timeout.total_seconds(),
            shows_excerpts=self.guard.policy_of(ticket).excerpts,
        )
        await failpoint.reach("executor.after_effect")
        return outcome

    async def drain(self, seconds: float) -> None:
        """Start nothing more, wait for the attempts and cancel the rest after `seconds`."""
        await self.starter.drain(seconds)

    def _parse(self, body: bytes) -> tuple[list[Ticket], list[TicketHeader]]:
        """Return the tickets of a work batch, and apart from them the saturated ones.

        A ticket that must start before enough deferred runs of its target or of its tenant is not
        apart.
        """
        targets, tenants = self.starter.saturated_targets(), self.starter.saturated_tenants()
        if not targets and not tenants:
            return decode_model(TICKET_BATCH, body), []
        saturated: list[TicketHeader] = []
        others: list[TicketHeader] = []
        for ticket in parse_ticket_headers(body):
            rank = start_rank(ticket.due_at, ticket.priority)
            of_target = targets.get(target_share(ticket.tenant, ticket.downstream))
            of_tenant = tenants.get(ticket.tenant)
            if of_tenant is not None and of_tenant <= rank:
                metrics.TENANT_SATURATED_TICKETS.inc()
                saturated.append(ticket)
            elif of_target is not None and of_target <= rank:
                metrics.TARGET_SATURATED_TICKETS.inc()
                saturated.append(ticket)
            else:
                others.append(ticket)
        return decode_model(TICKET_BATCH, batch_body(others)), saturated

    async def _requeue(self, tickets: list[TicketHeader]) -> None:
        """Send tickets through a delay queue, so that they delay no other run."""
        lateness = self.clock.now() - min(ticket.due_at for ticket in tickets)
        ttl = requeue_ttl(lateness, random.random())  # noqa: S311  # the spread is no secret
        await self.publisher.publish_all(to_one_delay_queue(tickets, ttl))

    def _give_up(self, run: ClaimedRun) -> None:
        """Remove a run whose lease has ended, because another executor may own the run."""
        log.warning("run not started after lease end", run=str(run.key))
        self.claimed_runs.remove([run])

    async def _reserve_and_claim(self, tickets: list[Ticket]) -> bool:
        (ticket,) = tickets
        return not await self.rate_limiter.reserve(ticket) or await self._claim_rows(tickets)

    async def _claim_rows(self, tickets: list[Ticket]) -> bool:
        """Claim tickets that need a slot at their due time, and the others at once."""
        with_slot = [ticket for ticket in tickets if ticket.needs_slot]
        if not with_slot:
            return await self.claimers.direct.claim(tickets)
        others = [ticket for ticket in tickets if not ticket.needs_slot]
        results = await asyncio.gather(
            claim_each_at_due_time(with_slot, self.clock, self.claimers.overlap.claim),
            self.claimers.direct.claim(others),
        )
        return all(results)


async def return_unstarted(
    runs: Sequence[ClaimedRun],
    *,
    pool: asyncpg.Pool,
    publisher: Publisher,
    clock: Clock,
    claimed_runs: ClaimedRuns,
) -> None:
    """Return the claims of unstarted runs without an attempt, and publish new tickets for them.

    Raise `DatabaseUnavailable` or `BrokerUnavailable`. The leases of the runs then expire.
    """
    by_key = {run.key: run for run in runs}
    if not by_key:
        return
    held = [claims.Claim(run.key, run.token, run.attempt) for run in by_key.values()]
    async with publishing_transaction(pool, publisher, clock) as transaction:
        returned = await claims.return_unstarted(transaction.connection, held)
        tickets = [
            TicketHeader.of(by_key[key].ticket.model_copy(update={"seq": seq}))
            for key, seq in returned.items()
        ]
        await transaction.publish(tickets)
    claimed_runs.remove(list(by_key.values()))
    log.info("unstarted runs returned", runs=len(tickets))
    run_log.log_staged(tickets)
