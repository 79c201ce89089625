"""The webhook: the delivery of alerts from the queue `harebell.alerts` to a chat."""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
import structlog
from pydantic import TypeAdapter

from harebell.contract.amqp_names import JSON, message_type
from harebell.contract.events import Event
from harebell.contract.json_codec import decode_model, encode
from harebell.contract.message import Message
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.alert_monitor import REPEAT_AFTER
from harebell.dlq_inspector.model.alerts import SPIKE, STALLED, headline
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.runtime.clock import monotonic

POST_TIMEOUT: Final = 5.0  # seconds of one try
RETRY_PAUSES: Final = (1.0, 4.0)  # seconds before the second and the third try, which is the last
DELIVERED: Final = "delivered"
FAILED: Final = "failed"
MAX_REMEMBERED: Final = 1_000  # alerts of other publishers

_OWN_TYPES: Final = {message_type(verb) for verb in (SPIKE, STALLED)}
_EVENTS: Final = TypeAdapter(list[Event])
_HEADERS: Final = {"Content-Type": JSON, "User-Agent": "Harebell"}
_SUCCESSFUL: Final = range(200, 300)

log = structlog.get_logger()


class WebhookBody(Message):
    """The body of a post: the field `text` that chats show, and the whole event."""

    text: str
    event: Event


class RecentlySent:
    """The alerts of other publishers that the webhook delivered within the last hour.

    Other publishers repeat an alert as often as they detect its condition.
    The dlq_inspectors publish their own alerts once an hour, so these alerts are not remembered.
    """

    def __init__(self) -> None:
        self._sent_at: dict[tuple[str, str, str], float] = {}

    def contains(self, event: Event, now: float) -> bool:
        sent_at = self._sent_at.get(_alert_key(event))
        return sent_at is not None and now - sent_at < REPEAT_AFTER.total_seconds()

    def add(self, event: Event, now: float) -> None:
        """Remember the alert, and drop the oldest one above `MAX_REMEMBERED`."""
        if event.type not in _OWN_TYPES:
            self._sent_at.pop(_alert_key(event), None)
            self._sent_at[_alert_key(event)] = now
        if len(self._sent_at) > MAX_REMEMBERED:
            del self._sent_at[next(iter(self._sent_at))]


def _alert_key(event: Event) -> tuple[str, str, str]:
    return event.source, event.type, event.subject


class Webhook:
    """The handler that posts alerts to one address, which may contain a secret and is not logged.

    The operator chooses the address, so the rules for the addresses of targets do not apply.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._recently_sent = RecentlySent()
        for result in (DELIVERED, FAILED):
            metrics.ALERTS_POSTED.labels(result)  # a rate ignores the first value of a new series

    async def post(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Post each alert in order. Other alerts wait in the queue, which keeps them an hour."""
        for delivery in deliveries:
            for event in decode_model(_EVENTS, delivery.trusted_body):
                if not self._recently_sent.contains(event, monotonic()):
                    await self._post_with_retries(event)
        return [DONE] * len(deliveries)

    async def _post_with_retries(self, event: Event) -> None:
        body = encode(WebhookBody(text=headline(event), event=event))
        for pause in (*RETRY_PAUSES, None):
            failure = await self._post_once(body)
            if failure is None:
                metrics.ALERTS_POSTED.labels(DELIVERED).inc()
                self._recently_sent.add(event, monotonic())
                return
            log.warning("alert post failed", alert=event.id, reason=failure)
            if pause is not None:
                await asyncio.sleep(pause)
        metrics.ALERTS_POSTED.labels(FAILED).inc()

    async def _post_once(self, body: bytes) -> str | None:
        """Return None after a successful post, or the failure without the address."""
        timeout = aiohttp.ClientTimeout(total=POST_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=_HEADERS) as session,
                session.post(self._url, data=body, allow_redirects=False) as response,
            ):
                return None if response.status in _SUCCESSFUL else f"status {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__
