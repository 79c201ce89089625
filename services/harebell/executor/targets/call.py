"""One call of a target: the only code that knows the three kinds of targets and the timeout."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, assert_never

import structlog

from harebell.contract.errors import SecretMissing, SigningKeyInvalid
from harebell.contract.target import (
    AmqpTarget,
    HttpTarget,
    Target,
    TaskTarget,
    delegation_of,
)
from harebell.domain.retry import TIMEOUT, Failure
from harebell.executor.targets.amqp import AmqpTargets
from harebell.executor.targets.attempt import (
    AttemptContext,
    Delegated,
    Success,
    TargetOutcome,
    excerpt,
    failure_with,
)
from harebell.executor.targets.call_signer import CallSigner
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import SecretResolver, shorten
from harebell.executor.targets.task import TaskTargets

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The clients of the three kinds of targets, the secrets of their calls, and the signer."""

    http: HttpTargets
    amqp: AmqpTargets
    task: TaskTargets
    secrets: SecretResolver
    signer: CallSigner


async def call_target(
    target: Target,
    attempt: AttemptContext,
    targets: Targets,
    *,
    seconds: float,
    shows_excerpts: bool = True,
) -> TargetOutcome | Delegated:
    """Call the target once, for at most `seconds`.

    The outcome contains the beginning of what the target has sent, if `shows_excerpts`.

    Return `Delegated` if the target accepted a run that a worker completes.

    Raise only `CancelledError`. Each other error is a failed attempt, so that the run ends.
    Without one of its signing keys, the attempt fails and sends nothing.
    """
    try:
        if not isinstance(target, TaskTarget):
            attempt = targets.signer.sign(attempt)
        resolved, used = targets.secrets.resolve(target, attempt.ticket.run_spec.tenant)
    except (SecretMissing, SigningKeyInvalid) as error:
        return Failure(error.code, excerpt(error.reason))
    try:
        # The HTTP client applies the timeout itself, because a status line may have arrived.
        async with asyncio.timeout(None if isinstance(target, HttpTarget) else seconds):
            outcome = await _call(targets, resolved, attempt, seconds=seconds)
    except TimeoutError:
        return Failure(TIMEOUT, f"The attempt did not end within {seconds:g} s.")
    except Exception as error:  # a defect of the executor, not of the target
        # A traceback may quote a secret, so the log of a call with secrets contains no traceback.
        log.exception("target call failed", run=attempt.ticket.run_id, exc_info=used is None)
        outcome = failure_with("target_error", error)
    if isinstance(outcome, Success) and is_accepted(target, outcome):
        return Delegated(outcome.status)
    if not shows_excerpts:
        return shorten(outcome, lambda _: "")
    return outcome if used is None else shorten(outcome, used.shorten)


def is_accepted(target: Target, outcome: Success) -> bool:
    """Return whether the successful call delegates the run to a worker.

    Another status than 202 completes the run, because the target has done the work itself.
    """
    if delegation_of(target) is None:
        return False
    return outcome.status is None or outcome.status == HTTPStatus.ACCEPTED


def _call(
    targets: Targets, target: Target, attempt: AttemptContext, *, seconds: float
) -> Coroutine[Any, Any, TargetOutcome]:
    match target:
        case HttpTarget():
            return targets.http.call(target.http, attempt, seconds)
        case AmqpTarget():
            return targets.amqp.call(target.amqp, attempt, seconds)
        case TaskTarget():
            return targets.task.call(target.task, attempt, seconds)
        case _:
            assert_never(target)
