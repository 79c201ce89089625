"""The bus as a definitions file that RabbitMQ imports: topology, users, permissions, policies."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, model_validator

from harebell.contract.amqp_names import APP_ID, DELAY, WORK
from harebell.contract.message import StrictMessage, invalid
from harebell.contract.schedule import DEFAULT_POOL
from harebell.contract.types import PoolName, Tenant
from harebell.messaging.topology.bus import DISPATCHER, INTAKE, QUERY, SYSTEM, work_topology
from harebell.messaging.topology.declarations import Exchange, Queue, Topology
from harebell.messaging.topology.permissions import (
    User,
    any_of,
    human_users,
    service_users,
    starting_with,
    tenant_user,
    watchdog_user,
)

SALT_BYTES: Final = 4  # RabbitMQ's own
HASHING: Final = "rabbit_password_hashing_sha256"
NO_PASSWORD: Final = ""  # nobody can log in until `rabbitmqctl change_password`

MAX_QUEUED_COMMANDS: Final = 100_000  # messages; beyond, publishers are refused
MAX_QUEUED_BATCHES: Final = 1_000_000  # messages of up to 200 tickets in one queue

_COMMANDS: Final = any_of(re.escape(INTAKE.name), re.escape(QUERY.name))
_TICKETS: Final = any_of(
    starting_with(f"{DELAY}."), starting_with(f"{WORK}."), re.escape(DISPATCHER.name)
)

SaltSource: TypeAlias = Callable[[int], bytes]


def _other(tenant: str) -> str:
    """A tenant's user may have queues of its own name: ours must not be among them."""
    if tenant == APP_ID:
        raise invalid("reserved_name", f"{APP_ID} is the name of what is Harebell's own")
    return tenant


OtherTenant = Annotated[Tenant, AfterValidator(_other)]


class InstallationOptions(StrictMessage):
    """What differs between installations."""

    vhost: Annotated[str, Field(min_length=1, max_length=128)] = "/"
    pools: tuple[PoolName, ...] = ()  # beside the default one
    tenants: tuple[OtherTenant, ...] = ()  # that get a user
    passwords: Mapping[str, SecretStr] = {}  # by user; without one there is no login

    @property
    def users(self) -> tuple[User, ...]:
        tenants = map(tenant_user, dict.fromkeys(self.tenants))
        return (*service_users(), watchdog_user(), *human_users(), *tenants)

    @model_validator(mode="after")
    def _users_exist(self) -> Self:
        if strangers := set(self.passwords) - {user.name for user in self.users}:
            raise invalid("unknown_user", f"there is no user {min(strangers)!r} to have a password")
        return self


def definitions_file(options: InstallationOptions, salt: SaltSource) -> dict[str, Any]:
    """As JSON. The same value that services declare, so `HAREBELL_TOPOLOGY=check` agrees."""
    topology = SYSTEM
    for pool in dict.fromkeys(options.pools):
        if pool != DEFAULT_POOL:
            topology += work_topology(pool)
    vhost, users = options.vhost, options.users
    return {
        "vhosts": [{"name": vhost, "description": "Harebell: schedules and their runs"}],
        "users": [_user(user, options.passwords.get(user.name), salt) for user in users],
        "permissions": [_permission(user, vhost) for user in users],
        "topic_permissions": list(_topic_permissions(users, vhost)),
        "exchanges": [_exchange(exchange, vhost) for exchange in topology.exchanges],
        "queues": [_queue(queue, vhost) for queue in topology.queues],
        "bindings": _bindings(topology, vhost),
        "policies": [
            _policy("harebell-commands", _COMMANDS, MAX_QUEUED_COMMANDS, vhost),
            _policy("harebell-tickets", _TICKETS, MAX_QUEUED_BATCHES, vhost),
        ],
    }


def password_hash(password: str, salt: bytes) -> str:
    """As RabbitMQ keeps it: base64 of the salt and the digest of salt and password."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _user(user: User, password: SecretStr | None, salt: SaltSource) -> dict[str, Any]:
    known = "" if password is None else password.get_secret_value()
    return {
        "name": user.name,
        "password_hash": password_hash(known, salt(SALT_BYTES)) if known else NO_PASSWORD,
        "hashing_algorithm": HASHING,
        "tags": list(user.tags),
    }


def _permission(user: User, vhost: str) -> dict[str, Any]:
    return {
        "user": user.name,
        "vhost": vhost,
        "configure": user.configure,
        "write": user.write,
        "read": user.read,
    }


def _topic_permissions(users: Iterable[User], vhost: str) -> Iterable[dict[str, Any]]:
    for user in users:
        for topics in user.topics:
            yield {
                "user": user.name,
                "vhost": vhost,
                "exchange": topics.exchange,
                "write": topics.write,
                "read": topics.read,
            }


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind.value,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }


def _queue(queue: Queue, vhost: str) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": False,
        "arguments": queue.arguments(),
    }


def _bindings(topology: Topology, vhost: str) -> list[dict[str, Any]]:
    return [
        {
            "source": binding.exchange,
            "vhost": vhost,
            "destination": binding.queue,
            "destination_type": "queue",
            "routing_key": binding.routing_key,
            "arguments": {},
        }
        for binding in topology.bindings
    ]


def _policy(name: str, pattern: str, length: int, vhost: str) -> dict[str, Any]:
    """A bound on what waits. What is over it is refused, never dropped: the publisher holds it."""
    return {
        "name": name,
        "vhost": vhost,
        "pattern": pattern,
        "apply-to": "queues",
        "priority": 0,
        "definition": {"max-length": length, "overflow": "reject-publish"},
    }
