"""Row 36: the broker confirms the messages of an exchange and drops them."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from tests.chaos.environment import NAMES, Environment
from tests.chaos.faults.registry import fault
from tests.chaos.links import BROKER

from harebell.contract import amqp_names

REPLIES: Final = ""  # the default exchange
EXCHANGES: Final = {
    "a": [amqp_names.CHANGES],
    "b": [amqp_names.DELAY],
    "c": [amqp_names.DUE],
    "d": [amqp_names.WORK],
    "e": [amqp_names.CONTROL],
    "f": [amqp_names.EVENTS],
    "g": [REPLIES],
    "h": [
        amqp_names.CHANGES,
        amqp_names.DELAY,
        amqp_names.DUE,
        amqp_names.WORK,
        amqp_names.CONTROL,
        amqp_names.EVENTS,
        REPLIES,
    ],
}
# A lost ticket is published again after a wait that doubles from one republication to the next.
RECOVERY: Final = 60.0  # seconds


def _drop(row: str, exchanges: Sequence[str]) -> None:
    names = ", ".join(each.removeprefix("harebell.") or "replies" for each in exchanges)

    @fault(row, f"confirmed and dropped: {names}", recovery=RECOVERY)
    async def inject(environment: Environment) -> AsyncIterator[None]:
        for service in NAMES:
            environment.links.set(service, BROKER, drops=list(exchanges))
        yield
        for service in NAMES:
            environment.links.set(service, BROKER)


for _letter, _exchanges in EXCHANGES.items():
    _drop(f"36{_letter}", _exchanges)
