"""The alert monitor: events for new and parked dead letters, and for stalled replay jobs."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import asyncpg
import structlog
from sqlalchemy import Select, and_, func, literal_column, select

from harebell.contract.errors import HarebellError
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.model.alerts import (
    PARKED,
    SPIKE,
    STALLED,
    Alert,
    DeadLetterSpike,
    ParkedDeadLetters,
    StalledReplayJob,
)
from harebell.dlq_inspector.store.groups import is_hidden
from harebell.messaging.event_publisher import OutgoingEvent, event_messages
from harebell.messaging.publisher import Publisher
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage.engine import fetch_rows, translate_db_errors
from harebell.storage.tables import dead_letters, failure_groups

CHECK_INTERVAL: Final = 5.0  # seconds
REPEAT_AFTER: Final = timedelta(hours=1)  # the time between two events of a lasting condition
MAX_RECENT: Final = 10_000  # new dead letters of one check; a larger number is as alarming
MAX_STALLED: Final = 100  # stalled replay jobs of one check

# A rate delays the next batch of a job, so a job is not stalled before its next allowed time.
_FIND_STALLED: Final = """
SELECT * FROM (
    SELECT tenant, id AS replay_job_id, state, reason, total - taken AS remaining,
        replayed - succeeded - failed AS unfinished,
        greatest(coalesce(progressed_at, created_at), next_allowed_at) AS since
    FROM replay_jobs
    WHERE state = 'running' OR (state = 'paused' AND reason IS NOT NULL)
) AS job
WHERE since < now() - $1::interval ORDER BY since LIMIT $2
"""
# Only the dlq_inspector that changes the row publishes the event, whatever their number.
_RECORD_ALERT: Final = """
INSERT INTO alerts AS known (tenant, verb, subject, notified_at) VALUES ($1, $2, $3, now())
ON CONFLICT (tenant, verb, subject) DO UPDATE SET notified_at = now()
WHERE known.notified_at <= now() - $4::interval
RETURNING notified_at
"""
_DELETE_EXPIRED: Final = "DELETE FROM alerts WHERE notified_at < now() - 2 * $1::interval"

log = structlog.get_logger()


class AlertMonitor:
    """The publisher of alert events, which all dlq_inspectors together publish once an hour.

    The monitor publishes before the commit of the row in `alerts`, so a crash may repeat an event.
    """

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        publisher: Publisher,
        settings: DlqInspectorSettings,
        parked: Callable[[], int],
    ) -> None:
        self._pool = pool
        self._parked = parked
        self._publisher = publisher
        self._settings = settings

    async def run(self) -> None:
        """Check the conditions regularly until the task is cancelled."""
        for verb in (SPIKE, PARKED, STALLED):
            metrics.ALERTS.labels(verb)  # a rate ignores the first value of a new series
        while True:
            try:
                await self.check()
            except HarebellError as error:
                log.warning("alert check failed", reason=error.reason)
            await asyncio.sleep(CHECK_INTERVAL)

    async def check(self) -> None:
        """Publish an event for each new alert and for each alert that has lasted an hour.

        Raise `DatabaseUnavailable`, or the errors of `Publisher.publish_all`.
        """
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                alerts = await self._find_alerts(connection)
                events = [
                    event
                    for alert in alerts
                    if (event := await _event_if_new(connection, alert)) is not None
                ]
                await connection.execute(_DELETE_EXPIRED, REPEAT_AFTER)
                await self._publisher.publish_all(event_messages(events))
        for event in events:
            metrics.ALERTS.labels(event.verb).inc()
            log.warning("alert published", **event.event["data"])

    async def _find_alerts(self, connection: asyncpg.Connection) -> list[Alert]:
        settings = self._settings
        spikes = await fetch_rows(
            connection, _spikes(settings.alert_window, settings.alert_dead_letter_count)
        )
        stalled = await connection.fetch(
            _FIND_STALLED, settings.alert_replay_stalled_after, MAX_STALLED
        )
        metrics.REPLAY_JOBS_STALLED.set(len(stalled))
        return [
            *(DeadLetterSpike(**row) for row in spikes),
            *(StalledReplayJob(**row) for row in stalled),
            *([ParkedDeadLetters(parked=parked)] if (parked := self._parked()) else []),
        ]


def _spikes(window: timedelta, max_count: int) -> Select[Any]:
    """Return the tenants with more new dead letters, and the largest group of each tenant.

    A person has muted or archived the hidden groups, so their dead letters do not count.
    Imports do not count either, because their tenant chooses their times.
    """
    columns = dead_letters.c
    recent = (
        select(columns.tenant, columns.dead_at, columns.group_id)
        .where(
            columns.dead_at > func.now() - window,
            ~columns.is_imported,
            ~is_hidden(dead_letters),
        )
        .order_by(columns.dead_at.desc())
        .limit(literal_column(str(MAX_RECENT)))
        .subquery("recent")
    )
    spikes = (
        select(
            recent.c.tenant,
            func.count().label("dead_letters"),
            func.min(recent.c.dead_at).label("since"),
            func.mode().within_group(recent.c.group_id.asc()).label("group"),
        )
        .group_by(recent.c.tenant)
        .having(func.count() > max_count)
        .subquery("spikes")
    )
    return select(spikes, failure_groups.c.target, failure_groups.c.error_code).join_from(
        spikes,
        failure_groups,
        and_(
            failure_groups.c.tenant == spikes.c.tenant,
            failure_groups.c.id == spikes.c.group,
        ),
        isouter=True,
    )


async def _event_if_new(connection: asyncpg.Connection, alert: Alert) -> OutgoingEvent | None:
    """Return the event, or None if an event of this alert is younger than an hour."""
    notified_at = await connection.fetchval(
        _RECORD_ALERT, alert.tenant, alert.verb, alert.subject, REPEAT_AFTER
    )
    if notified_at is None:
        return None
    return OutgoingEvent(alert.tenant, alert.verb, alert.event(notified_at))
