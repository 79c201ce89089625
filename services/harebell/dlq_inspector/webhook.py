"""The webhook: the delivery of alerts from the queue `harebell.alerts` to a chat.

The consumer of the queue stores each alert, and a loop posts the stored alerts.
A chat that is unavailable for hours therefore receives its alerts afterwards.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import aiohttp
import asyncpg
import structlog
from pydantic import TypeAdapter

from harebell.contract.amqp_names import JSON, OPERATIONS_TENANT, message_type
from harebell.contract.errors import Transient
from harebell.contract.events import Event
from harebell.contract.json_codec import decode_model, encode
from harebell.contract.message import Message
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.alert_monitor import REPEAT_AFTER
from harebell.dlq_inspector.model.alerts import SPIKE, STALLED, headline
from harebell.dlq_inspector.store import alert_posts
from harebell.domain.webhook_signature import MessageSigner, message_id_of
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.runtime.clock import Clock, monotonic
from harebell.runtime.event_wait import wait_until_set
from harebell.runtime.signing_keys import SigningKeys
from harebell.storage.engine import translate_db_errors

POST_TIMEOUT: Final = 5.0  # seconds of one try
# The pauses after the first, the second and each later failed try of an alert.
RETRY_PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 4, 15, 60))
POLL_INTERVAL: Final = 1.0  # seconds between two searches for an alert to post
CLEAN_UP_INTERVAL: Final = 60.0  # seconds
DELIVERED: Final = "delivered"
FAILED: Final = "failed"  # given up after `alert_posts.MAX_AGE`
DROPPED: Final = "dropped"  # above `alert_posts.MAX_PENDING`

_OWN_TYPES: Final = {message_type(verb) for verb in (SPIKE, STALLED)}
_EVENTS: Final = TypeAdapter(list[Event])
_EVENT: Final = TypeAdapter(Event)
_HEADERS: Final = {"Content-Type": JSON, "User-Agent": "Harebell"}
_SUCCESSFUL: Final = range(200, 300)

log = structlog.get_logger()


class WebhookBody(Message):
    """The body of a post: the field `text` that chats show, and the whole event."""

    text: str
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSigner:
    """The signer of posts. `names` are secrets of the tenant of the operators."""

    keys: SigningKeys
    names: Sequence[str]
    clock: Clock

    def headers(self, alert_id: str, body: bytes) -> dict[str, str]:
        """Return the headers of the signature, or none without a name.

        Raise `SecretMissing` or `SigningKeyInvalid`.
        """
        if not self.names:
            return {}
        keys = self.keys.read(OPERATIONS_TENANT, self.names)
        second = int(self.clock.now().timestamp())
        return MessageSigner(keys, message_id_of(alert_id), second).headers(body)


class Webhook:
    """The delivery of alerts to one address, which may contain a secret and is not logged.

    The operator chooses the address, so the rules for the addresses of targets do not apply.
    """

    def __init__(self, url: str, pool: asyncpg.Pool, signer: AlertSigner) -> None:
        self._url = url
        self._pool = pool
        self._signer = signer
        self._stored = asyncio.Event()
        for result in (DELIVERED, FAILED, DROPPED):
            metrics.ALERTS_POSTED.labels(result)  # a rate ignores the first value of a new series

    async def store(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Store each alert before its acknowledgement.

        The dlq_inspectors publish their own alerts once an hour, and a repetition has a new id.
        Other publishers repeat an alert as often as they detect its condition.
        Raise `DatabaseUnavailable`.
        """
        for delivery in deliveries:
            for event in decode_model(_EVENTS, delivery.trusted_body):
                with translate_db_errors():
                    dropped = await alert_posts.store(
                        self._pool,
                        event,
                        is_unique=event.type in _OWN_TYPES,
                        repeat_after=REPEAT_AFTER,
                    )
                self._count_unposted(DROPPED, dropped)
        self._stored.set()
        return [DONE] * len(deliveries)

    async def run(self) -> None:
        """Post the stored alerts, and repeat failed posts, until the task is cancelled."""
        cleaned_up_at = monotonic() - CLEAN_UP_INTERVAL
        while True:
            self._stored.clear()
            try:
                if monotonic() - cleaned_up_at >= CLEAN_UP_INTERVAL:
                    cleaned_up_at = monotonic()
                    with translate_db_errors():
                        given_up = await alert_posts.clean_up(self._pool, repeat_after=REPEAT_AFTER)
                    self._count_unposted(FAILED, given_up)
                while await self._post_next():
                    pass
            except Transient as error:
                log.warning("alert delivery failed", reason=error.reason)
            if not await wait_until_set(self._stored, POLL_INTERVAL):
                continue

    async def _post_next(self) -> bool:
        """Post one alert whose try is due. Return False if none is due.

        A crash after the post repeats the alert with the same `event.id`.
        """
        with translate_db_errors():
            alert = await alert_posts.take(self._pool)
        if alert is None:
            return False
        event = decode_model(_EVENT, alert.event)
        body = encode(WebhookBody(text=headline(event), event=event))
        failure = await self.post(body, alert_id=event.id)
        with translate_db_errors():
            if failure is None:
                await alert_posts.confirm(self._pool, alert)
                metrics.ALERTS_POSTED.labels(DELIVERED).inc()
            else:
                log.warning("alert post failed", alert=event.id, tries=alert.tries, reason=failure)
                await alert_posts.postpone(self._pool, alert, retry_pause(alert.tries))
        return True

    def _count_unposted(self, result: str, alerts: int) -> None:
        if alerts:
            metrics.ALERTS_POSTED.labels(result).inc(alerts)
            log.warning("alerts not posted", result=result, alerts=alerts)

    async def post(self, body: bytes, *, alert_id: str) -> str | None:
        """Post a body once. Return None after a success, or the failure without the address.

        Without one of the signing keys, the function sends nothing.
        """
        timeout = aiohttp.ClientTimeout(total=POST_TIMEOUT)
        try:
            headers = self._signer.headers(alert_id, body)
        except Transient as error:
            return error.reason
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=_HEADERS) as session,
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return None if response.status in _SUCCESSFUL else f"status {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__


def retry_pause(tries: int) -> timedelta:
    """Return the pause before the next try of an alert, after this number of failed tries."""
    return RETRY_PAUSES[min(tries, len(RETRY_PAUSES)) - 1]
