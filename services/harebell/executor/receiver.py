"""The receiver of a lane: the first step of a run in the executor, before its claim."""

import asyncio
import random
from dataclasses import dataclass, field

from harebell.contract.amqp_names import PROBE
from harebell.contract.json_codec import decode_model
from harebell.contract.ticket import TICKET_BATCH, Ticket
from harebell.domain.run_states import start_rank
from harebell.executor import metrics
from harebell.executor.claiming.claimer import Claimer
from harebell.executor.claiming.overlap import claim_each_at_due_time
from harebell.executor.model.claimed_run import Probes, target_share
from harebell.executor.running.bulkheads import requeue_ttl
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.running.starter import LaneStarter
from harebell.messaging.acknowledge import ABANDONED, DONE, Delivery, Outcome
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader, parse_ticket_headers
from harebell.messaging.ticket_messages import batch_body, to_one_delay_queue
from harebell.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Claimers:
    """The claimers of a lane: one without overlap slots, and one with overlap slots."""

    direct: Claimer
    overlap: Claimer


@dataclass(slots=True, kw_only=True)
class LaneReceiver:
    """The way of a work batch to the claimers of its lane, or back to the delay queues."""

    claimers: Claimers
    starter: LaneStarter
    rate_limiter: RateLimiter
    probes: Probes
    start_guard: StartGuard
    publisher: Publisher
    clock: Clock
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def receive(self, delivery: Delivery) -> Outcome:
        """Requeue the tickets of saturated targets and tenants, and claim the other tickets.

        Acknowledge the delivery after the claim, because the leases then protect the runs.
        """
        async with self._reading:  # one batch per iteration of the loop; due runs start in between
            await asyncio.sleep(0)
            await self.start_guard.wait_until_clear()
            tickets, saturated = self._parse(delivery.trusted_body)
            if delivery.message.headers.get(PROBE):
                self.probes.add(tickets)
        if saturated:
            await self._requeue(saturated)
        return DONE if await self._claim(tickets) else ABANDONED

    async def _claim(self, tickets: list[Ticket]) -> bool:
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
