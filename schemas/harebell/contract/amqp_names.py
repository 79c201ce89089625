"""The names on the bus that others may rely on: exchanges, routing keys, headers, lanes."""

import re
from enum import StrEnum
from typing import Final

from harebell.contract.errors import InvalidInput

COMMANDS: Final = "harebell.commands"
QUERIES: Final = "harebell.queries"
CHANGES: Final = "harebell.changes"
DELAY: Final = "harebell.delay"
DUE: Final = "harebell.due"
WORK: Final = "harebell.work"
CONTROL: Final = "harebell.control"
EVENTS: Final = "harebell.events"
DEAD: Final = "harebell.dead"

CHANGES_SCHEDULE: Final = "schedule"
CHANGES_DLQ: Final = "dlq"
CHANGES_BREAKER: Final = "breaker"
DUE_KEY: Final = "run"

# In a tenant's place, of what is no tenant's. Only who may publish for any tenant may use it.
OPERATIONS_TENANT: Final = "harebell"

DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
JSON: Final = "application/json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
APP_ID: Final = "harebell"
VERSION: Final = 1  # of every message; it only ever gains optional fields
_VERSIONED: Final = re.compile(r"harebell\.[a-z_.]+\.v(?P<version>[0-9]{1,9})")

# Towards targets: HTTP headers as they stand, AMQP headers of the same names.
RUN_ID: Final = "Harebell-Run-Id"
SCHEDULE_ID: Final = "Harebell-Schedule-Id"
SCHEDULED_FOR: Final = "Harebell-Scheduled-For"
ATTEMPT: Final = "Harebell-Attempt"
FENCING_TOKEN: Final = "Harebell-Fencing-Token"  # noqa: S105  # a header's name
IDEMPOTENCY_KEY: Final = "Idempotency-Key"

# On dead letters: scalars, so that the management UI shows them.
DEAD_REASON: Final = "harebell-reason"
DEAD_QUEUE: Final = "harebell-queue"
DEAD_KEY: Final = "harebell-key"
DEAD_RUN: Final = "harebell-run-id"
DEAD_ATTEMPTS: Final = "harebell-attempts"

# On events of refusals, likewise: a payload is one line there, and its end out of sight.
REJECTED_KEY: Final = "harebell-key"
REJECTED_CODE: Final = "harebell-code"
REJECTED_FIELD: Final = "harebell-field"
REJECTED_REASON: Final = "harebell-reason"


class Lane(StrEnum):
    """Priority classes of work. A work queue is one pool x one lane."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


_HIGH_FROM: Final = 8
_NORMAL_FROM: Final = 4


def lane_of(priority: int) -> Lane:
    """8-10 is high, 4-7 normal, 1-3 low."""
    if priority >= _HIGH_FROM:
        return Lane.HIGH
    return Lane.NORMAL if priority >= _NORMAL_FROM else Lane.LOW


def message_key(tenant: str, verb: str) -> str:
    """The routing key of a command, a query or an event: `acme.schedule.put`."""
    return f"{tenant}.{verb}"


def split_key(routing_key: str) -> tuple[str, str]:
    """`acme.schedule.put` is ("acme", "schedule.put")."""
    tenant, _, verb = routing_key.partition(".")
    return tenant, verb


def work_key(pool: str, lane: Lane) -> str:
    return f"{pool}.{lane}"


def message_type(verb: str) -> str:
    """The AMQP `type` of a message, and the CloudEvents `type` of an event."""
    return f"harebell.{verb}.v{VERSION}"


def check_version(type_: str | None) -> None:
    """Raises `Malformed` for a version of our messages that is not known here.

    A message that does not say one is of the first; what others call theirs is their affair.
    """
    said = _VERSIONED.fullmatch(type_ or "")
    if said is not None and said["version"] != str(VERSION):
        reason = f"{type_} is not known here, only version {VERSION}"
        raise InvalidInput(reason, field="type", code="unknown_version")
