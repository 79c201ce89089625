"""The webhook: alerts from their queue to a chat, a few tries each, in the way of nothing else."""

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

POST_TIMEOUT: Final = 5.0  # seconds, of one try
PAUSES: Final = (1.0, 4.0)  # seconds before another try; after the last, the alert is given up
DELIVERED: Final = "delivered"
FAILED: Final = "failed"

OURS: Final = {message_type(verb) for verb in (SPIKE, STALLED)}  # told seldom enough
MOST_REMEMBERED: Final = 1_000  # alerts of others

_EVENTS: Final = TypeAdapter(list[Event])
_HEADERS: Final = {"Content-Type": JSON, "User-Agent": "Harebell"}
_TAKEN: Final = range(200, 300)

log = structlog.get_logger()


class WebhookBody(Message):
    """The body: `text` where incoming webhooks of chats look for it, and the whole event."""

    text: str
    event: Event


class RecentlySent:
    """What others told and was posted within the hour: they tell it each time that they see it."""

    def __init__(self) -> None:
        self._posted: dict[tuple[str, str, str], float] = {}

    def has(self, told: Event, now: float) -> bool:
        at = self._posted.get(_what(told))
        return at is not None and now - at < REPEAT_AFTER.total_seconds()

    def note(self, told: Event, now: float) -> None:
        if told.type not in OURS:
            self._posted.pop(_what(told), None)
            self._posted[_what(told)] = now
        if len(self._posted) > MOST_REMEMBERED:
            del self._posted[next(iter(self._posted))]


def _what(told: Event) -> tuple[str, str, str]:
    return told.source, told.type, told.subject


class Webhook:
    """The address is the operator's own, so no rule for targets holds here; it is never logged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lately = RecentlySent()
        for result in (DELIVERED, FAILED):
            metrics.ALERTS_POSTED.labels(result)  # a rate is blind to the first of a new series

    async def post(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """The others wait in the queue meanwhile, an hour at most."""
        for delivery in deliveries:
            for told in decode_model(_EVENTS, delivery.trusted_body):
                if not self._lately.has(told, monotonic()):
                    await self._tell(told)
        return [DONE] * len(deliveries)

    async def _tell(self, told: Event) -> None:
        body = encode(WebhookBody(text=headline(told), event=told))
        for pause in (*PAUSES, None):
            fault = await self._post(body)
            if fault is None:
                metrics.ALERTS_POSTED.labels(DELIVERED).inc()
                self._lately.note(told, monotonic())
                return
            log.warning("alert not posted", alert=told.id, reason=fault)
            if pause is not None:
                await asyncio.sleep(pause)
        metrics.ALERTS_POSTED.labels(FAILED).inc()

    async def _post(self, body: bytes) -> str | None:
        """What failed, without the address; None: it was taken."""
        timeout = aiohttp.ClientTimeout(total=POST_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=_HEADERS) as session,
                session.post(self._url, data=body, allow_redirects=False) as answer,
            ):
                return None if answer.status in _TAKEN else f"status {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__
