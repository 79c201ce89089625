"""Attempts for tests that call targets. All have one ticket, whose values do not matter."""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from harebell.contract.amqp_names import Lane
from harebell.contract.target import TaskCall, TaskTarget
from harebell.contract.ticket import RunSpec, Ticket
from harebell.domain.tenant_policy import TenantPolicies
from harebell.executor.targets.attempt import AttemptContext
from harebell.executor.targets.call_signer import CallSigner
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.signing_keys import SigningKeys

SCHEDULE: Final = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
NINE: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)


def attempt(number: int = 1, token: int = 2, *, replay_number: int = 0) -> AttemptContext:
    """Return an attempt. The test passes the target of the call apart from the attempt."""
    ticket = Ticket(
        schedule_id=SCHEDULE,
        scheduled_for=NINE,
        due_at=NINE,
        seq=1,
        version=1,
        replay_number=replay_number,
        pool="default",
        lane=Lane.NORMAL,
        priority=5,
        run_spec=RunSpec(tenant="default", target=TaskTarget(task=TaskCall(name="harebell.echo"))),
    )
    return AttemptContext(ticket, number, token, started_at=NINE)


def no_keys() -> CallSigner:
    """Return a signer without keys."""
    return CallSigner(SigningKeys(SecretFiles(None)), TenantPolicies.unrestricted)
