"""Who is silent, told on the bus to whoever listens there: a hint, as all events are."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from harebell.audit.core.report import Silence
from harebell.client.connection import Link
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import SilenceFact, event
from harebell.contract.scalars import instant_text
from harebell.kernel.amqp.events import Fact, event_messages
from harebell.kernel.amqp.publish import Publisher

VERB: Final = "watch.missed"
NAME: Final = "harebell-watch"


def fact_of(tenant: str, silence: Silence, now: datetime) -> Fact:
    """Told again while it lasts, under the same id."""
    since = instant_text(silence.since)
    fact = SilenceFact(who=silence.who, since=silence.since)
    id_ = f"{silence.who}/{since}"
    return Fact(tenant, VERB, event(tenant, VERB, fact, id_=id_, subject=silence.who, at=now))


async def tell(amqp_url: str, tenant: str, silences: Iterable[Silence], now: datetime) -> list[str]:
    """What could not be told; that nobody listens is no failure."""
    messages = event_messages(fact_of(tenant, each, now) for each in silences)
    link = Link(amqp_url, name=NAME, properties={"service": NAME})
    try:
        await link.open()
        failures = await Publisher(link).try_all(messages)
    except HarebellError as error:
        failures = [error]
    finally:
        await link.close()
    missed = [each for each in failures if each is not None and not isinstance(each, Unroutable)]
    return [f"not told on the bus: {failure}" for failure in missed]
