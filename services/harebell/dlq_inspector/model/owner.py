"""Owners: the tenants to which the parts of a dead message belong."""

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson

from harebell.contract.amqp_names import (
    CHANGES_DLQ,
    OPERATIONS_TENANT,
    is_delayed_queue,
    message_type,
    split_key,
)
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.topology.bus import (
    DLQ,
    INTAKE,
    QUERY,
    is_undelivered_queue,
    tenant_of_queue,
    undelivered_queue,
    undelivered_queue_of_delayed,
)

TICKET_BATCH: Final = message_type("ticket.batch")
ACCEPTED_COMMANDS: Final = message_type("accepted_commands")
# Users publish to these queues.
_USER_QUEUES: Final = frozenset({INTAKE.name, QUERY.name, DLQ.name})
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)


class OwnedPart(NamedTuple):
    """The part of a message body that belongs to one tenant."""

    tenant: str
    body: bytes


def owned_parts(dead: DeadMessage, body: bytes) -> list[OwnedPart]:
    """Return the parts of a dead message by tenant.

    A message that names no tenant belongs to the operators, because it may contain the payload of
    any tenant. Only the routing key counts for a message that users can publish.
    """
    if is_delayed_queue(dead.queue) or is_undelivered_queue(dead.queue):
        # Users wrote the message, so its tenant is that which the service or the queue names.
        owner = dead.tenant or dead.queue.removeprefix(undelivered_queue("").name)
        return [OwnedPart(_tenant_of({"tenant": owner}), body)]
    if _is_request(dead):
        return [OwnedPart(tenant_of_request(dead), body)]
    if dead.type not in (TICKET_BATCH, ACCEPTED_COMMANDS):
        return [OwnedPart(OPERATIONS_TENANT, body)]
    try:
        content = decode(body)
    except InvalidInput:
        return [OwnedPart(OPERATIONS_TENANT, body)]
    if dead.type == TICKET_BATCH and isinstance(content, list):
        return _parts_of_tickets(content, body)
    return [OwnedPart(_tenant_of(content), body)]


def tenant_of_undelivered(queue: str, policies: TenantPolicies) -> str | None:
    """Return the tenant of a queue of what the queues of one owner dead-letter.

    Return None for another queue, and for an exchange with delayed messages of no tenant.
    """
    owner = queue.removeprefix(undelivered_queue("").name)
    if owner == queue:
        return None
    exchange = queue.removeprefix(undelivered_queue_of_delayed("").name)
    return owner if exchange == queue else policies.tenant_of_delayed(exchange)


def tenant_of_request(dead: DeadMessage) -> str:
    """Return the tenant of a command or query: that of its queue, or else of its routing key.

    The broker checks the routing key only where the sender publishes to the shared exchanges.
    """
    if (owner := tenant_of_queue(dead.queue)) is not None:
        return owner
    return _tenant_of_key(dead.routing_key) if _is_request(dead) else OPERATIONS_TENANT


def _is_request(dead: DeadMessage) -> bool:
    if tenant_of_queue(dead.queue) is not None:
        return True
    return dead.queue in _USER_QUEUES and dead.routing_key != CHANGES_DLQ


def _tenant_of_key(routing_key: str) -> str:
    tenant, verb = split_key(routing_key)
    return tenant if verb and _TENANT.fullmatch(tenant) else OPERATIONS_TENANT


def _parts_of_tickets(tickets: list[Any], body: bytes) -> list[OwnedPart]:
    """Return one part for each tenant of a batch. The tickets of one part keep their order."""
    of_tenants = sorted(((_tenant_of_ticket(each), each) for each in tickets), key=_tenant_of_pair)
    parts = {
        tenant: [ticket for _, ticket in group]
        for tenant, group in groupby(of_tenants, key=_tenant_of_pair)
    }
    if len(parts) <= 1:
        return [OwnedPart(next(iter(parts), OPERATIONS_TENANT), body)]
    return [OwnedPart(tenant, orjson.dumps(part)) for tenant, part in parts.items()]


def _tenant_of_pair(pair: tuple[str, object]) -> str:
    return pair[0]


def _tenant_of_ticket(ticket: object) -> str:
    return _tenant_of(ticket.get("run_spec") if isinstance(ticket, Mapping) else None)


def _tenant_of(content: object) -> str:
    """Return the field `tenant` of an object of a service, or else the tenant of the operators."""
    tenant = content.get("tenant") if isinstance(content, Mapping) else None
    is_named = isinstance(tenant, str) and _TENANT.fullmatch(tenant)
    return str(tenant) if is_named else OPERATIONS_TENANT
