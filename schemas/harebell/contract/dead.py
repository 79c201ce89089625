"""The dead letter: a run that will not be tried again by itself, with its whole story."""

from typing import Any
from uuid import UUID

from harebell.contract.identity import RunId
from harebell.contract.message import Message, empty_default
from harebell.contract.scalars import Instant


class AttemptRecord(Message):
    """One try of a run."""

    replay_number: int
    number: int
    started_at: Instant | None = None
    finished_at: Instant
    lease_holder: str | None = None
    outcome: str
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None


class DeadRun(Message):
    """A run that came to its end without success, and every attempt at it."""

    run_id: RunId
    tenant: str
    schedule_id: UUID
    scheduled_for: Instant
    key: str | None = None
    version: int
    replay_number: int
    reason: str
    error_code: str
    error: str | None = None
    dead_at: Instant
    target: dict[str, Any]
    attempts: list[AttemptRecord]


class DeadMessage(Message):
    """A message that could not be understood, or that broke its consumer. Body in base64."""

    queue: str
    message_id: str | None = None
    type: str | None = None
    routing_key: str
    reason: str
    error: str | None = None
    dead_at: Instant
    headers: dict[str, Any] = empty_default(dict)
    body: str
