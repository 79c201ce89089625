"""The watchdog: repeated audits, whose results are pings and events of missed heartbeats."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import aiohttp

from harebell.audit.audit import ALL_SCHEDULES, Scope, run_audit
from harebell.audit.gauges import Audited, AuditGauges, write_gauges
from harebell.audit.model.records import LATE_AFTER
from harebell.audit.model.report import MissedHeartbeat, Report
from harebell.audit.store import connect_read_only
from harebell.connection.amqp import Connection, login_of
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import LivenessEventData, make_event
from harebell.contract.types import instant_text
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.event_publisher import OutgoingEvent, event_messages
from harebell.messaging.publisher import Publisher

EVENT: Final = "liveness.missed"
CLIENT_NAME: Final = "harebell-watchdog"
PING_TIMEOUT: Final = 10.0  # seconds
FAILURE_SUFFIX: Final = "/fail"  # of the ping URL, as healthchecks.io expects it
MAX_PING_LENGTH: Final = 1_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """A loop of audits of the last `period`, which needs neither a service nor a broker.

    It posts each result to `ping_url`, records it in `gauges`, and with `metrics_file` also in this
    file. With `amqp_url`, it publishes each missed heartbeat as an event of `tenant` too.
    """

    database_url: str
    tenant: str
    period: timedelta
    interval: timedelta
    ping_url: str | None = None
    amqp_url: str | None = None
    scope: Scope = ALL_SCHEDULES
    late_after: timedelta = LATE_AFTER
    policies: Callable[[], TenantPolicies] | None = None  # called before each audit
    gauges: AuditGauges | None = None
    metrics_file: Path | None = None

    async def lines(self, now: Callable[[], datetime]) -> AsyncIterator[str]:
        """Yield the result of each audit and each failed notification, without end."""
        while True:
            result = await self._audit(now())
            yield summary(result)
            failures = [*await self._ping(result), *await self._publish(result, now())]
            for failure in [*failures, *self._record(Audited(result, now()))]:
                yield failure
            await asyncio.sleep(self.interval.total_seconds())

    async def _audit(self, now: datetime) -> Report | HarebellError:
        """Return the report, or the error that prevented the audit."""
        try:
            policies = None if self.policies is None else await asyncio.to_thread(self.policies)
            async with connect_read_only(self.database_url) as connection:
                return await run_audit(
                    connection,
                    now - self.period,
                    scope=self.scope,
                    late_after=self.late_after,
                    policies=policies,
                )
        except HarebellError as error:
            return error

    def _record(self, audited: Audited) -> list[str]:
        """Record the audit in the gauges, and return the failure."""
        if self.gauges is not None:
            self.gauges.record(audited)
        failure = write_gauges(self.metrics_file, audited) if self.metrics_file else None
        return [] if failure is None else [failure]

    async def _ping(self, result: Report | HarebellError) -> list[str]:
        """Post the result, and return the failure. The monitor notices a missing ping."""
        if self.ping_url is None:
            return []
        is_clean = isinstance(result, Report) and result.is_clean
        url = self.ping_url.rstrip("/") + ("" if is_clean else FAILURE_SUFFIX)
        timeout = aiohttp.ClientTimeout(total=PING_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, data=summary(result)[:MAX_PING_LENGTH]) as response,
            ):
                response.raise_for_status()
        except (aiohttp.ClientError, TimeoutError) as error:
            return [f"The ping to {url} failed: {str(error) or type(error).__name__}"]
        return []

    async def _publish(self, result: Report | HarebellError, now: datetime) -> list[str]:
        if self.amqp_url is None or not isinstance(result, Report):
            return []
        if not result.missed_heartbeats:
            return []
        return await publish_missed_heartbeats(
            self.amqp_url, self.tenant, result.missed_heartbeats, now=now
        )


async def publish_missed_heartbeats(
    amqp_url: str, tenant: str, heartbeats: Iterable[MissedHeartbeat], *, now: datetime
) -> list[str]:
    """Publish one event for each missed heartbeat, and return the failures.

    An event that no queue receives is not a failure.
    """
    messages = event_messages(_to_event(tenant, each, now) for each in heartbeats)
    connection = Connection(amqp_url, name=CLIENT_NAME, properties={"service": CLIENT_NAME})
    failures: list[BaseException | None]
    try:
        await connection.open()
        failures = list(
            await Publisher(connection, login=login_of(amqp_url)).publish_each(messages)
        )
    except HarebellError as error:
        failures = [error]
    finally:
        await connection.close()
    errors = [each for each in failures if each is not None and not isinstance(each, Unroutable)]
    return [f"The event was not published: {error}" for error in errors]


def _to_event(tenant: str, heartbeat: MissedHeartbeat, now: datetime) -> OutgoingEvent:
    """Return the event, whose id is the same while the component misses its heartbeat."""
    component, since = heartbeat.component, heartbeat.since
    event = make_event(
        tenant,
        EVENT,
        LivenessEventData(component=component, since=since),
        id_=f"{component}/{instant_text(since)}",
        subject=component,
        at=now,
    )
    return OutgoingEvent(tenant, EVENT, event)


def summary(result: Report | HarebellError) -> str:
    """Return the result of an audit as one line."""
    if not isinstance(result, Report):
        return f"The audit failed with the error {result.code}: {result.reason}"
    text = f"The ledger records {result.recorded} of {result.expected} required runs."
    if result.counts:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(result.counts.items()))
        text += f" The audit found {counts}."
    for each in result.missed_heartbeats:
        text += f" The component {each.component} has not worked since {instant_text(each.since)}."
    return text if not result.is_clean else f"{text} The audit found no fault."
