"""The attempts of a lane: the last step of a run in the executor, before its completion.

The target receives the context of the span of its attempt.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

import structlog
from prometheus_client import Histogram

from harebell.contract.amqp_names import WORK, Lane
from harebell.contract.trace import TraceContext
from harebell.contract.types import instant_text
from harebell.domain.retry import EXPIRED, Failure
from harebell.executor import metrics
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun, Probes
from harebell.executor.running.blackouts import Blackouts
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.delegations import Delegations
from harebell.executor.running.leases import LeaseKeeper
from harebell.executor.running.rate_limiter import RateLimiter
from harebell.executor.targets.attempt import (
    AttemptContext,
    AttemptOutcome,
    Delegated,
    PolicyGuard,
    Stopped,
    Success,
)
from harebell.executor.targets.call import Targets, call_target
from harebell.messaging import run_log
from harebell.messaging.event_publisher import publish_events
from harebell.messaging.publisher import Publisher
from harebell.messaging.run_events import delegated_event
from harebell.runtime import failpoint, spans
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.spans import ActiveSpan, TracePolicy

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AttemptSpans:
    """The spans `process run` of one executor."""

    policy: TracePolicy = field(default_factory=TracePolicy)

    def start(self, run: ClaimedRun, now: datetime) -> ActiveSpan | None:
        """Start the span of an attempt and set the trace of the run.

        Return None without tracing. The run then passes on the context of its command, if the
        attempt belongs to the trace of the command.
        """
        ticket = run.ticket
        relation = self.policy.relation(
            ticket.origin,
            ticket.previous_attempt,
            is_first=run.attempt == 1 and not ticket.replay_number,
            now=now,
        )
        tracer = spans.current()
        if tracer is None:
            run.trace = relation.parent
            return None
        span = tracer.start("process run", "CONSUMER", relation, at=now)
        run.trace = span.context
        if span.is_recording:
            run.recorded_trace = span.context.traceparent
            span.set(
                messaging__system="rabbitmq",
                messaging__operation__type="process",
                messaging__operation__name="process run",
                messaging__destination__name=WORK,
                messaging__message__id=ticket.run_id,
                harebell__run__id=ticket.run_id,
                harebell__run__attempt=run.attempt,
                harebell__run__replay_number=ticket.replay_number,
                harebell__run__scheduled_for=instant_text(ticket.scheduled_for),
                harebell__run__lateness=(now - ticket.due_at).total_seconds(),
                harebell__tenant=run.tenant,
                harebell__schedule__id=str(ticket.schedule_id),
                harebell__schedule__version=ticket.version,
                harebell__pool=ticket.pool,
                harebell__lane=ticket.lane.value,
                **_key(ticket.run_spec.key),
            )
        return span


def exemplar_of(trace: TraceContext | None) -> dict[str, str] | None:
    """Return the labels of an exemplar, or None for an attempt without a recorded span."""
    if trace is None or not trace.is_sampled:
        return None
    return {"trace_id": trace.trace_id, "span_id": trace.span_id}


def describe_outcome(span: ActiveSpan, outcome: AttemptOutcome | Delegated) -> None:
    """Set the result of the attempt. The text of an error may contain data of users."""
    match outcome:
        case Success() | Delegated():
            return
        case Failure():
            span.fail(outcome.code)
        case Stopped():
            span.fail("stopped")
        case _:
            assert_never(outcome)


def _key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"harebell__schedule__key": key[: spans.MAX_ATTRIBUTE]}


@dataclass(slots=True, kw_only=True)
class LaneAttempts:
    """The attempts of one lane, each from the last checks before the call to its completion."""

    lane: Lane
    leases: LeaseKeeper
    rate_limiter: RateLimiter
    blackouts: Blackouts
    delegations: Delegations
    targets: Targets
    guard: PolicyGuard
    completer: Completer
    claimed_runs: ClaimedRuns
    publisher: Publisher
    clock: Clock
    spans: AttemptSpans = field(default_factory=AttemptSpans)
    probes: Probes = field(default_factory=Probes)
    _lateness: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self._lateness = metrics.START_LATENESS.labels(self.lane)

    async def run(self, run: ClaimedRun) -> None:
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
            self.probes.remove(run)
            self.claimed_runs.remove([run])
            event = delegated_event(
                run.ticket, attempt=run.attempt, token=run.token, at=self.clock.now()
            )
            await publish_events(self.publisher, [event])
            return
        if run.progress is not None and not isinstance(outcome, Success):
            await self.leases.save_progress(run)
        self.completer.complete(run, outcome, is_probe=self.probes.remove(run))

    def stop(self, run: ClaimedRun, reason: str) -> None:
        """Complete an attempt that a stop request has cancelled."""
        self.completer.complete(run, Stopped(reason))

    def abandon(self, run: ClaimedRun) -> None:
        """Give up the claim after an unexpected error.

        With further renewals of its lease, the rescuer could never recover the run.
        """
        self.claimed_runs.remove([run])

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

    def _give_up(self, run: ClaimedRun) -> None:
        """Remove a run whose lease has ended, because another executor may own the run."""
        log.warning("run not started after lease end", run=str(run.key))
        self.claimed_runs.remove([run])
