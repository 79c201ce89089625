"""The context of an attempt, its judgement by the tenant policy, and its outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from harebell.contract.amqp_names import (
    ATTEMPT,
    CHECKPOINT,
    FENCING_TOKEN,
    HEARTBEAT,
    IDEMPOTENCY_KEY,
    REPLAY,
    RUN_ID,
    SCHEDULE_ID,
    SCHEDULED_FOR,
    TENANT,
)
from harebell.contract.errors import NotAllowed, Rejected
from harebell.contract.progress import ascii_json
from harebell.contract.target import delegation_of
from harebell.contract.ticket import Ticket
from harebell.contract.trace import TraceContext
from harebell.contract.types import instant_text
from harebell.domain.retry import Failure
from harebell.domain.target_check import check_call, check_pool, check_priority
from harebell.domain.tenant_policy import PolicySource, TenantPolicy
from harebell.domain.webhook_signature import MessageSigner
from harebell.runtime import metrics

MAX_EXCERPT: Final = 1024  # bytes of UTF-8


class AttemptContext(NamedTuple):
    """One attempt of a run. `number` counts from 1, and `token` is the fencing token.

    `signer` signs each message of the attempt, and is None for a run without signing keys.
    `trace` is the context that the target continues, or None without a trace.
    `checkpoint` is JSON of the earlier attempts, and `report` takes the progress of this attempt.
    The class is a tuple because each attempt creates one (decision 19).
    """

    ticket: Ticket
    number: int
    token: int
    started_at: datetime
    signer: MessageSigner | None = None
    trace: TraceContext | None = None
    checkpoint: str | None = None
    report: Callable[[Mapping[str, Any]], None] | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that HTTP requests and AMQP messages carry, without a signature.

        Only a replayed run has the header with the replay number. The contract reserves the name,
        so that no user can set the header for a run that is no replay.
        """
        run_id = self.ticket.run_id
        headers = {
            TENANT: self.ticket.run_spec.tenant,
            RUN_ID: run_id,
            SCHEDULE_ID: str(self.ticket.schedule_id),
            SCHEDULED_FOR: instant_text(self.ticket.scheduled_for),
            ATTEMPT: str(self.number),
            FENCING_TOKEN: str(self.token),
            IDEMPOTENCY_KEY: run_id,
        }
        if self.ticket.replay_number:
            headers[REPLAY] = str(self.ticket.replay_number)
        if (delegation := delegation_of(self.ticket.run_spec.target)) is not None:
            headers[HEARTBEAT] = f"{delegation.heartbeat.total_seconds():g}"
        if self.checkpoint is not None:
            headers[CHECKPOINT] = ascii_json(orjson.loads(self.checkpoint))
        return headers if self.trace is None else headers | self.trace.headers()


class Success(NamedTuple):
    """A successful attempt, with the HTTP status and an excerpt of the result."""

    status: int | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """An attempt that a stop request has cancelled."""

    reason: str


@dataclass(frozen=True, slots=True)
class Delegated:
    """An attempt whose call was accepted and whose run a worker completes."""

    status: int | None = None  # of HTTP


TargetOutcome: TypeAlias = Success | Failure
AttemptOutcome: TypeAlias = TargetOutcome | Stopped


def excerpt(text: str) -> str:
    """Return the beginning of the text in a form that PostgreSQL can store.

    The result contains no NUL and no lone surrogate, and at most MAX_EXCERPT bytes.
    """
    beginning = text[:MAX_EXCERPT].replace("\x00", "\ufffd").encode(errors="replace")
    return beginning[:MAX_EXCERPT].decode(errors="ignore")


def json_excerpt(value: Any) -> str | None:  # noqa: ANN401  # a task may return any object
    """Return an excerpt of the value as JSON, or None for None.

    Never raise an error, because the task has succeeded. A value that is not JSON becomes the name
    of its type.
    """
    if value is None:
        return None
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # integers above 64 bits, lone surrogates, endless nesting
        text = f"<{type(value).__name__}>"
    return excerpt(text)


def error_text(error: BaseException) -> str:
    """Return an excerpt such as `KeyError: 'seconds'`."""
    return excerpt(f"{type(error).__name__}: {error}")


def failure_with(code: str, error: BaseException, *, retryable: bool = True) -> Failure:
    """Return the failure with the text of an error, of which only its type is Harebell's own."""
    own = len(f"{type(error).__name__}: ")
    return Failure(code, error_text(error), retryable=retryable, own=own)


@dataclass(frozen=True, slots=True)
class PolicyGuard:
    """The policies in force and the pool of the executor."""

    policies: PolicySource
    pool: str

    def policy_of(self, ticket: Ticket) -> TenantPolicy:
        """Return the policy of the tenant of a run."""
        return self.policies.current.of(ticket.run_spec.tenant)

    def refusal(self, ticket: Ticket) -> Failure | None:
        """Return the failure of a run that the policy forbids, or None.

        The HTTP target checks its URLs itself, because redirects lead to further URLs.
        """
        policy = self.policy_of(ticket)
        try:
            check_pool(self.pool, policy)
            check_priority(ticket.priority, policy)
            check_call(ticket.run_spec.target, ticket.run_spec.tenant, policy)
        except NotAllowed as error:
            return refused(error)
        return None


def refused(error: Rejected) -> Failure:
    """Return the permanent failure of an attempt without a call, and count it."""
    if not isinstance(error, NotAllowed) or error.rule is None:
        return Failure(error.code, excerpt(error.reason), retryable=False)
    metrics.POLICY_REFUSALS.labels(error.code, error.rule).inc()
    return Failure(error.code, excerpt(f"{error.field}: {error.reason}"), retryable=False)
