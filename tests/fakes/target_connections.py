"""Connections of AMQP targets for tests without a broker."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from harebell.executor.targets.amqp import AmqpTargets


@dataclass(frozen=True, slots=True)
class FakeTargetConnection:
    """A connection that publishes with a function."""

    publish: Callable[..., Coroutine[Any, Any, Any]]

    async def close(self) -> None:
        pass


def amqp_targets(publish: Callable[..., Coroutine[Any, Any, Any]]) -> AmqpTargets:
    """Return AMQP targets whose connections all publish with this function."""
    return AmqpTargets(lambda _: FakeTargetConnection(publish))
