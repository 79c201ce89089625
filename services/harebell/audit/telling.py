"""Who is silent, told on the bus to whoever listens there: a hint, as all events are."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from harebell.audit.core.report import MissedHeartbeat
from harebell.client.connection import Connection
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import LivenessEventData, make_event
from harebell.contract.scalars import instant_text
from harebell.kernel.amqp.events import OutgoingEvent, event_messages
from harebell.kernel.amqp.publish import Publisher

VERB: Final = "watch.missed"
NAME: Final = "harebell-watch"


def fact_of(tenant: str, silence: MissedHeartbeat, now: datetime) -> OutgoingEvent:
    """Told again while it lasts, under the same id."""
    since = instant_text(silence.since)
    fact = LivenessEventData(component=silence.who, since=silence.since)
    id_ = f"{silence.who}/{since}"
    return OutgoingEvent(
        tenant, VERB, make_event(tenant, VERB, fact, id_=id_, subject=silence.who, at=now)
    )


async def tell(
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
