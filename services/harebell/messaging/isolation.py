"""The isolation of one failing message in a delivery that contains several messages."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import structlog

from harebell.contract.errors import Transient
from harebell.messaging.acknowledge import (
    DONE,
    BatchHandler,
    DeadLettered,
    Delivery,
    Outcome,
    PartsDeadLettered,
    handle_with_retries,
)

Split: TypeAlias = Callable[[Delivery], Sequence[Delivery]]

log = structlog.get_logger()


def isolating(handle: BatchHandler, split: Split) -> BatchHandler:
    """Return a handler that handles each part of a delivery alone after `handle` has failed.

    One message that fails in every try then becomes a dead letter without the others.
    A batch of several deliveries fails as a whole, and its worker repeats each delivery alone.
    """

    async def handle_one(part: Delivery) -> Outcome:
        return (await handle([part]))[0]

    async def handle_isolated(deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        try:
            return await handle(deliveries)
        except Transient:
            raise
        except Exception as error:
            parts = split(deliveries[0]) if len(deliveries) == 1 else ()
            if len(parts) <= 1:
                raise
            log.info(
                "delivery split", queue=deliveries[0].queue, parts=len(parts), error=str(error)
            )
        outcomes = [(part, await handle_with_retries(handle_one, part)) for part in parts]
        dead = tuple((part, each) for part, each in outcomes if isinstance(each, DeadLettered))
        return [PartsDeadLettered(dead) if dead else DONE]

    return handle_isolated
