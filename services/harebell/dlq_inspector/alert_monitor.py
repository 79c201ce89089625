"""Watching the desk: what grows or stands still is told on the bus, once an hour while it lasts."""

import asyncio
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import HarebellError
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.model.alerts import (
    SPIKE,
    STALLED,
    Alert,
    DeadLetterSpike,
    StalledReplayJob,
)
from harebell.dlq_inspector.store import groups
from harebell.messaging.event_publisher import OutgoingEvent, event_messages
from harebell.messaging.publisher import Publisher
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage.engine import translate_db_errors

EVERY: Final = 5.0  # seconds
REPEAT_AFTER: Final = timedelta(hours=1)  # until what lasts is told again
NEWEST: Final = 10_000  # letters of one look; more are as alarming
MOST_STALLED: Final = 100  # replays of one look

# What a group was muted or archived for is nobody's alarm.
_GROWN: Final = f"""
WITH away AS (SELECT id FROM failure_groups WHERE {groups.SHOWN_STATE} <> 'open'),
grown AS (
    SELECT tenant, count(*) AS dead_letters, min(dead_at) AS since,
        mode() WITHIN GROUP (ORDER BY group_id) AS "group"
    FROM (
        SELECT tenant, dead_at, group_id FROM dead_letters
        WHERE dead_at > now() - $1::interval
            AND (group_id IS NULL OR group_id NOT IN (SELECT id FROM away))
        ORDER BY dead_at DESC LIMIT {NEWEST}
    ) AS new
    GROUP BY tenant HAVING count(*) > $2
)
SELECT grown.*, known.target, known.error_code
FROM grown LEFT JOIN failure_groups AS known ON known.id = grown."group"
"""  # noqa: S608  # constants

# Where a rate keeps it waiting, it is paced until later.
_STALLED: Final = f"""  # noqa: S608  # constants only
SELECT * FROM (
    SELECT tenant, id AS replay_job_id, state, reason, total - taken AS remaining,
        replayed - succeeded - failed AS unfinished,
        greatest(coalesce(progressed_at, created_at), next_allowed_at) AS since
    FROM replay_jobs
    WHERE state = 'running' OR (state = 'paused' AND reason IS NOT NULL)
) AS job
WHERE since < now() - $1::interval ORDER BY since LIMIT {MOST_STALLED}
"""
# Whoever gets the row tells it, whichever inspectors there are.
_TELL: Final = """
INSERT INTO alerts AS known (tenant, verb, subject, notified_at) VALUES ($1, $2, $3, now())
ON CONFLICT (tenant, verb, subject) DO UPDATE SET notified_at = now()
WHERE known.notified_at <= now() - $4::interval
RETURNING notified_at
"""
_FORGET: Final = "DELETE FROM alerts WHERE notified_at < now() - 2 * $1::interval"

log = structlog.get_logger()


class AlertMonitor:
    """An alert is told in the transaction that notes it: rather twice than never."""

    def __init__(
        self, pool: asyncpg.Pool, publisher: Publisher, settings: DlqInspectorSettings
    ) -> None:
        self._pool = pool
        self._publisher = publisher
        self._settings = settings

    async def run(self) -> None:
        """Until cancelled."""
        for verb in (SPIKE, STALLED):
            metrics.ALERTS.labels(verb)  # a rate is blind to the first of a new series
        while True:
            try:
                await self.check()
            except HarebellError as error:
                log.warning("alerts are held", reason=error.reason)
            await asyncio.sleep(EVERY)

    async def check(self) -> None:
        """Raises `DatabaseUnavailable`, and what publishing raises."""
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                alerts = await self._alerts(connection)
                told = [fact for each in alerts if (fact := await _new(connection, each))]
                await connection.execute(_FORGET, REPEAT_AFTER)
                await self._publisher.publish_all(event_messages(told))
        for fact in told:
            metrics.ALERTS.labels(fact.verb).inc()
            log.warning("alert", **fact.event["data"])

    async def _alerts(self, connection: asyncpg.Connection) -> list[Alert]:
        settings = self._settings
        grown = await connection.fetch(
            _GROWN, settings.alert_window, settings.alert_dead_letter_count
        )
        stalled = await connection.fetch(_STALLED, settings.alert_replay_stalled_after)
        metrics.REPLAY_JOBS_STALLED.set(len(stalled))
        return [
            *(DeadLetterSpike(**row) for row in grown),
            *(StalledReplayJob(**row) for row in stalled),
        ]


async def _new(connection: asyncpg.Connection, alert: Alert) -> OutgoingEvent | None:
    """None where it was told not long ago."""
    notified_at = await connection.fetchval(
        _TELL, alert.tenant, alert.verb, alert.subject, REPEAT_AFTER
    )
    return notified_at and OutgoingEvent(alert.tenant, alert.verb, alert.event(notified_at))
