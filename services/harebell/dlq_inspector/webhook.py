"""The webhook: alerts from their queue to a chat, a few tries each, in the way of nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
import structlog
from pydantic import TypeAdapter

from harebell.contract.codec import encode, read
from harebell.contract.events import Event
from harebell.contract.message import Message
from harebell.contract.names import JSON
from harebell.dlq_inspector.core.alert import headline
from harebell.kernel import metrics
from harebell.kernel.amqp.consume import DONE, Delivery, Outcome

POST_TIMEOUT: Final = 5.0  # seconds, of one try
PAUSES: Final = (1.0, 4.0)  # seconds before another try; after the last, the alert is given up
ARRIVED: Final = "arrived"
GIVEN_UP: Final = "given_up"

_EVENTS: Final = TypeAdapter(list[Event])
_HEADERS: Final = {"Content-Type": JSON, "User-Agent": "Harebell"}
_TAKEN: Final = range(200, 300)

log = structlog.get_logger()


class Posted(Message):
    """The body: `text` where incoming webhooks of chats look for it, and the whole event."""

    text: str
    event: Event


class Webhook:
    """The address is the operator's own, so no rule for targets holds here; it is never logged."""

    def __init__(self, url: str) -> None:
        self._url = url
        for result in (ARRIVED, GIVEN_UP):
            metrics.ALERTS_POSTED.labels(result)  # a rate is blind to the first of a new series

    async def post(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """The others wait in the queue meanwhile, an hour at most."""
        for delivery in deliveries:
            for told in read(_EVENTS, delivery.own_body):
                await self._tell(told)
        return [DONE] * len(deliveries)

    async def _tell(self, told: Event) -> None:
        body = encode(Posted(text=headline(told), event=told))
        for pause in (*PAUSES, None):
            fault = await self._post(body)
            if fault is None:
                metrics.ALERTS_POSTED.labels(ARRIVED).inc()
                return
            log.warning("alert not posted", alert=told.id, reason=fault)
            if pause is not None:
                await asyncio.sleep(pause)
        metrics.ALERTS_POSTED.labels(GIVEN_UP).inc()

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
