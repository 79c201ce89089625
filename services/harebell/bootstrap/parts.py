"""The parts of a service: its consumers, and the loops beside them."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext
from harebell.messaging.consumer import Consumer
from harebell.runtime.retries import keep_running

Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Keep: TypeAlias = Callable[[str, Loop], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The consumers and loops of one service, which the simulation of the tests builds too."""

    consumers: Mapping[str, Consumer]  # by queue
    loops: Mapping[str, Loop]  # by their names in the log and in a metric

    async def run(self, context: ServiceContext, *, keep: Keep = keep_running) -> None:
        """Run the parts until the stop. `keep` decides what follows the failure of a loop."""
        for queue, consumer in self.consumers.items():
            context.health.check(queue, partial(_is_consuming, consumer))
        await run_until(
            context.stop,
            consuming=[consumer.run(context.stop) for consumer in self.consumers.values()],
            background=[context.run(), *(keep(name, loop) for name, loop in self.loops.items())],
        )


async def run_once(_: str, loop: Loop) -> None:
    """Run a loop whose failure ends the service, because its state in memory may be wrong."""
    await loop()


def _is_consuming(consumer: Consumer) -> bool:
    return consumer.is_consuming
