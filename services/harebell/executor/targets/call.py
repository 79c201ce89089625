"""One attempt, whatever its target: the only place that knows the three kinds and the timeout."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget
from harebell.domain.retry import Failure
from harebell.executor.targets.amqp import AmqpTargets
from harebell.executor.targets.attempt import AttemptContext, Outcome, error_text
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.task import TaskTargets

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Targets:
    """What an executor calls targets with; opened at start, closed at stop."""

    http: HttpTargets
    amqp: AmqpTargets
    task: TaskTargets


async def call_target(
    target: Target,
    attempt: AttemptContext,
    timeout: float,  # noqa: ASYNC109  # the link's name for it
    targets: Targets,
) -> Outcome:
    """Call the target once, for at most `timeout` seconds; raises nothing but CancelledError."""
    try:
        async with asyncio.timeout(timeout):
            return await _call(target, attempt, timeout, targets)
    except TimeoutError:
        return Failure("timeout", f"not finished within {timeout:g} s")
    except Exception as error:  # judged where deliveries are handled
        # Ours, not the target's; but a run must end in an outcome, or its slot is lost.
        log.exception("target raised", run=attempt.ticket.run_id)
        return Failure("target_error", error_text(error))


def _call(
    target: Target, attempt: AttemptContext, seconds: float, targets: Targets
) -> Coroutine[Any, Any, Outcome]:
    match target:
        case HttpTarget():
            return targets.http.call(target.http, attempt)
        case AmqpTarget():
            return targets.amqp.call(target.amqp, attempt, seconds)
        case TaskTarget():
            return targets.task.call(target.task, attempt, seconds)
        case _:
            assert_never(target)
