"""Who is silent, told on the bus to whoever listens there: a hint, as all events are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import aiohttp

from harebell.audit.audit import EVERYTHING, Scope, run_audit
from harebell.audit.model.records import LATE_AFTER
from harebell.audit.model.report import MissedHeartbeat, Report
from harebell.audit.store import connect_read_only
from harebell.client.connection import Connection
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import LivenessEventData, make_event
from harebell.contract.types import instant_text
from harebell.messaging.event_publisher import OutgoingEvent, event_messages
from harebell.messaging.publisher import Publisher

VERB: Final = "liveness.missed"
NAME: Final = "harebell-watch"


def fact_of(tenant: str, silence: MissedHeartbeat, now: datetime) -> OutgoingEvent:
    """Told again while it lasts, under the same id."""
    since = instant_text(silence.since)
    fact = LivenessEventData(component=silence.component, since=silence.since)
    id_ = f"{silence.component}/{since}"
    return OutgoingEvent(
        tenant, VERB, make_event(tenant, VERB, fact, id_=id_, subject=silence.component, at=now)
    )


async def publish_missed_heartbeats(
    amqp_url: str, tenant: str, silences: Iterable[MissedHeartbeat], now: datetime
) -> list[str]:
    """What could not be told; that nobody listens is no failure."""
    messages = event_messages(fact_of(tenant, each, now) for each in silences)
    link = Connection(amqp_url, name=NAME, properties={"service": NAME})
    try:
        await link.open()
        failures = await Publisher(link).publish_each(messages)
    except HarebellError as error:
        failures = [error]
    finally:
        await link.close()
    missed = [each for each in failures if each is not None and not isinstance(each, Unroutable)]
    return [f"not told on the bus: {failure}" for failure in missed]


PING_TIMEOUT: Final = 10.0  # seconds
FAIL: Final = "/fail"  # behind the URL of the ping, as healthchecks.io and its kin have it
MAX_TOLD: Final = 1_000  # characters of what a ping says


@dataclass(frozen=True, slots=True)
class Watchdog:
    """What to audit, how often, and whom to tell. It needs no service, and the broker only to tell.

    `amqp_url`: where events of silence go, as the tenant's; None: nowhere.
    """

    database_url: str
    tenant: str
    back: timedelta  # so far the audit looks
    every: timedelta
    ping_url: str | None = None
    amqp_url: str | None = None
    scope: Scope = EVERYTHING
    late_after: timedelta = LATE_AFTER

    async def lines(self, now: Callable[[], datetime]) -> AsyncIterator[str]:
        """What was found, and what could not be told, for ever."""
        while True:
            told = await self._look(now())
            yield summary(told)
            for failure in [*await self._ping(told), *await self._announce(told, now())]:
                yield failure
            await asyncio.sleep(self.every.total_seconds())

    async def _look(self, now: datetime) -> Report | HarebellError:
        """An audit that could not be made is no good news either."""
        try:
            async with connect_read_only(self.database_url) as connection:
                return await run_audit(
                    connection, now - self.back, scope=self.scope, late_after=self.late_after
                )
        except HarebellError as error:
            return error

    async def _ping(self, told: Report | HarebellError) -> list[str]:
        """What failed; whoever waits for the ping will miss it."""
        if self.ping_url is None:
            return []
        is_well = isinstance(told, Report) and told.is_clean
        url = self.ping_url.rstrip("/") + ("" if is_well else FAIL)
        timeout = aiohttp.ClientTimeout(total=PING_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, data=summary(told)[:MAX_TOLD]) as answer,
            ):
                answer.raise_for_status()
        except (aiohttp.ClientError, TimeoutError) as error:
            return [f"not told at {url}: {str(error) or type(error).__name__}"]
        return []

    async def _announce(self, told: Report | HarebellError, now: datetime) -> list[str]:
        if self.amqp_url is None or not isinstance(told, Report) or not told.missed_heartbeats:
            return []
        return await publish_missed_heartbeats(self.amqp_url, self.tenant, told.missed_heartbeats, now)


def summary(told: Report | HarebellError) -> str:
    """One line."""
    if not isinstance(told, Report):
        return f"not audited: {told.reason} ({told.code})"
    found = [f"{kind} {count}" for kind, count in sorted(told.counts.items())]
    silent = [f"{each.component} is silent since {each.since}" for each in told.missed_heartbeats]
    return (
        f"owed {told.expected}, recorded {told.recorded}: {', '.join(found + silent) or 'all well'}"
    )
