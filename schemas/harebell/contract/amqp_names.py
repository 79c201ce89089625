"""The AMQP names on which other systems may rely: exchanges, routing keys, headers and lanes."""

import re
from collections.abc import Mapping
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
UNDELIVERED: Final = "harebell.undelivered"  # requests that their queue has dead-lettered
PARKED: Final = "harebell.parked"  # dead letters that cannot be stored

TENANTS: Final = "harebell.tenant"  # the prefix of the exchanges of tenants

DELAYED: Final = "harebell.delayed"  # the prefix of the queues of delayed messages

CHANGES_SCHEDULE: Final = "schedule"
CHANGES_DLQ: Final = "dlq"
CHANGES_BREAKER: Final = "breaker"
CHANGES_REPORT: Final = "report"
DUE_KEY: Final = "run"

DEFAULT_TENANT: Final = "default"  # of an installation with one tenant
# The tenant of messages that concern no tenant. Only operators may publish for this tenant.
OPERATIONS_TENANT: Final = "harebell"

DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
JSON: Final = "application/json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
APP_ID: Final = "harebell"
VERSION: Final = 1  # of every message; a version only gains optional fields
_VERSIONED: Final = re.compile(r"harebell\.[a-z_.]+\.v(?P<version>[0-9]{1,9})")

# The header of the plugin for delayed messages, in milliseconds. A delivered message has the
# negated value.
X_DELAY: Final = "x-delay"
# The header in which RabbitMQ writes when it received a message: milliseconds of Unix time.
TIMESTAMP_IN_MS: Final = "timestamp_in_ms"
_DUE_SUFFIX: Final = ".due"
MAX_DELAYED_EXCHANGE: Final = 127 - len(_DUE_SUFFIX)  # characters of the name

# Headers for targets: HTTP headers, and AMQP headers with the same names.
TENANT: Final = "Harebell-Tenant"
RUN_ID: Final = "Harebell-Run-Id"
SCHEDULE_ID: Final = "Harebell-Schedule-Id"
SCHEDULED_FOR: Final = "Harebell-Scheduled-For"
ATTEMPT: Final = "Harebell-Attempt"
FENCING_TOKEN: Final = "Harebell-Fencing-Token"  # noqa: S105  # the name of a header
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# The replay number, as a header that only the calls of a replayed run have.
REPLAY: Final = "Harebell-Replay"
# Of a delegated run: the seconds within which its worker must send the next heartbeat.
HEARTBEAT: Final = "Harebell-Heartbeat"
# The last checkpoint of the earlier attempts, as JSON in ASCII.
CHECKPOINT: Final = "Harebell-Checkpoint"
# Headers of Standard Webhooks 1.0, for targets and for the webhook of alerts.
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"

# Headers of dead letters. Each value is a scalar, because the management UI shows scalars only.
DEAD_REASON: Final = "harebell-reason"
DEAD_QUEUE: Final = "harebell-queue"
DEAD_KEY: Final = "harebell-key"
DEAD_RUN: Final = "harebell-run-id"
DEAD_ATTEMPTS: Final = "harebell-attempts"

# Headers of rejection events. The management UI shows only the first part of a long payload.
REJECTED_KEY: Final = "harebell-key"
REJECTED_CODE: Final = "harebell-code"
REJECTED_FIELD: Final = "harebell-field"
REJECTED_REASON: Final = "harebell-reason"

# The header of a work message whose tickets probe a half open breaker. The header is a hint: its
# loss makes a failed probe use an attempt.
PROBE: Final = "harebell-probe"
PROBE_HEADERS: Final[Mapping[str, bool]] = {PROBE: True}


class Lane(StrEnum):
    """The priority classes of runs. Each pool has one work queue for each lane."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


_MIN_HIGH_PRIORITY: Final = 8
_MIN_NORMAL_PRIORITY: Final = 4


def lane_of(priority: int) -> Lane:
    """Return high for 8 to 10, normal for 4 to 7 and low for 1 to 3."""
    if priority >= _MIN_HIGH_PRIORITY:
        return Lane.HIGH
    return Lane.NORMAL if priority >= _MIN_NORMAL_PRIORITY else Lane.LOW


def message_key(tenant: str, verb: str) -> str:
    """Return the routing key of a command, a query or an event, such as `acme.schedule.put`."""
    return f"{tenant}.{verb}"


def tenant_exchange(tenant: str) -> str:
    """Return the exchange for the commands and queries of one tenant: `harebell.tenant.acme`.

    The exchange exists for each tenant with a login of its own. It leads to the queues of this
    tenant only. In an installation without such logins, everyone uses `COMMANDS` and `QUERIES`.
    """
    return f"{TENANTS}.{tenant}"


def due_exchange(exchange: str) -> str:
    """Return the exchange that receives the delayed messages of an exchange after their delays."""
    return exchange + _DUE_SUFFIX


def exchange_of_due(exchange: str) -> str:
    """Return the exchange whose delayed messages a due exchange receives."""
    return exchange.removesuffix(_DUE_SUFFIX)


def delayed_queue_name(exchange: str) -> str:
    """Return the queue of the delayed messages of one exchange: `harebell.delayed.orders`."""
    return f"{DELAYED}.{exchange}"


def is_delayed_queue(queue: str) -> bool:
    """Return whether a queue has delayed messages, which their publishers wrote themselves."""
    return queue.startswith(delayed_queue_name(""))


def split_key(routing_key: str) -> tuple[str, str]:
    """Return the tenant and the verb: `acme.schedule.put` becomes `("acme", "schedule.put")`."""
    tenant, _, verb = routing_key.partition(".")
    return tenant, verb


def work_key(pool: str, lane: Lane) -> str:
    """Return the routing key of a work batch."""
    return f"{pool}.{lane}"


def message_type(verb: str) -> str:
    """Return the AMQP `type` of a message, which is also the CloudEvents `type` of an event."""
    return f"harebell.{verb}.v{VERSION}"


def check_version(type_: str | None) -> None:
    """Raise `InvalidInput` for a message of Harebell with an unknown version.

    A message without a version has version 1. The types of other systems are not checked.
    """
    match = _VERSIONED.fullmatch(type_ or "")
    if match is not None and match["version"] != str(VERSION):
        reason = f"The message must have version {VERSION}, not the type {type_}."
        raise InvalidInput(reason, field="type", code="unknown_version")
