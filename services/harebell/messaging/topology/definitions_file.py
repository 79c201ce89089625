"""The definitions file that RabbitMQ imports: topology, users, permissions and policies. Pure."""

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, model_validator

from harebell.contract.amqp_names import APP_ID, DELAY, WORK
from harebell.contract.message import StrictMessage, invalid
from harebell.contract.schedule import DEFAULT_POOL
from harebell.contract.types import PoolName, Tenant
from harebell.domain.tenant_policy import DelayedExchange
from harebell.messaging.topology.bus import (
    ALERT,
    BREAKERS,
    DEAD_LETTERS,
    DEAD_RECENT,
    DISPATCHER,
    DLQ,
    EVENTS_RECENT,
    INTAKE,
    OUTCOMES,
    PARKED_DEAD_LETTERS,
    QUERY,
    REPORTS,
    SYSTEM,
    TICKER,
    UNDELIVERED_REQUESTS,
    delayed_queue,
    delayed_topology,
    tenant_dlq_queue,
    tenant_intake_queue,
    tenant_query_queue,
    tenant_topology,
    undelivered_queue,
    work_topology,
)
from harebell.messaging.topology.declarations import Exchange, ExchangeKind, Queue, Topology
from harebell.messaging.topology.permissions import (
    User,
    any_of,
    human_users,
    operator_user,
    service_users,
    starting_with,
    tenant_user,
    watchdog_user,
)

SALT_BYTES: Final = 4  # the length that RabbitMQ requires
HASHING: Final = "rabbit_password_hashing_sha256"
NO_PASSWORD: Final = ""  # RabbitMQ refuses the login until `rabbitmqctl change_password`

MAX_QUEUED_COMMANDS: Final = 100_000  # messages in one queue
MAX_DELAYED_MESSAGES: Final = 1_000_000  # in one queue, which intake has not accepted
MAX_QUEUED_BATCHES: Final = 1_000_000  # messages of up to 200 tickets in one queue
_MIB: Final = 1024 * 1024
MAX_COMMAND_BYTES: Final = 1024 * _MIB  # in one queue that several tenants share
MAX_DELAYED_BYTES: Final = 1024 * _MIB  # of these messages
MAX_TENANT_COMMAND_BYTES: Final = 64 * _MIB  # in one queue of Harebell for one tenant
MAX_UNDELIVERED_BYTES: Final = 64 * _MIB  # in one queue of what those of one owner dead-letter
MAX_INTERNAL_BYTES: Final = 1024 * _MIB  # in one queue between services
MAX_TICKET_BYTES: Final = 8 * 1024 * _MIB  # in one queue of tickets
MAX_RECENT_BYTES: Final = 64 * _MIB  # in one queue of copies for people
MAX_TENANT_QUEUE_BYTES: Final = 256 * _MIB  # in one queue that a tenant declares
MAX_TENANT_CONNECTIONS: Final = 100  # of one login of a tenant
MAX_TENANT_CHANNELS: Final = 1_000  # of one login of a tenant
MAX_TENANT_QUEUES: Final = (
    500  # for each tenant that may declare them, in the limit of the virtual host
)
MAX_INSTANCE_QUEUES: Final = 1_000  # exclusive queues of instances, in the same limit

_COMMANDS: Final = any_of(re.escape(INTAKE.name), re.escape(QUERY.name))
_TENANT_COMMANDS: Final = any_of(
    *(
        starting_with(each("").name)
        for each in (tenant_intake_queue, tenant_query_queue, tenant_dlq_queue)
    )
)
_INTERNAL_QUEUES: Final = (
    TICKER,
    REPORTS,
    OUTCOMES,
    BREAKERS,
    DLQ,
    DEAD_LETTERS,
    UNDELIVERED_REQUESTS,
    PARKED_DEAD_LETTERS,
)
_INTERNAL: Final = any_of(*(re.escape(each.name) for each in _INTERNAL_QUEUES))
_RECENT: Final = any_of(*(re.escape(each.name) for each in (DEAD_RECENT, EVENTS_RECENT, ALERT)))
_TICKETS: Final = any_of(
    starting_with(f"{DELAY}."), starting_with(f"{WORK}."), re.escape(DISPATCHER.name)
)

RESERVED_TENANTS: Final = frozenset({"amq", "guest", "default"})
_USER_LIMITS: Final = {
    "max-connections": MAX_TENANT_CONNECTIONS,
    "max-channels": MAX_TENANT_CHANNELS,
}

SaltSource: TypeAlias = Callable[[int], bytes]


def can_have_login(tenant: str) -> bool:
    """Return whether the name of the tenant may be the name of its login."""
    return tenant not in RESERVED_TENANTS and not tenant.startswith(APP_ID)


def _check_tenant(tenant: str) -> str:
    """Reject the tenant whose user would have rights beyond the tenant.

    Names `amq.*` include the default exchange and so every queue. Names `harebell.*` and logins
    `harebell_*` are Harebell's own, and RabbitMQ creates the login `guest`. Clients that name no
    tenant use `default`.
    """
    if not can_have_login(tenant):
        names = ", ".join(sorted(RESERVED_TENANTS))
        reason = f"The tenant must not be one of {names} or begin with {APP_ID}, but is {tenant}."
        raise invalid("reserved_name", reason)
    return tenant


OperatorName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
UserTenant = Annotated[Tenant, AfterValidator(_check_tenant)]


class InstallationOptions(StrictMessage):
    """The options in which installations differ."""

    vhost: Annotated[str, Field(min_length=1, max_length=128)] = "/"
    pools: tuple[PoolName, ...] = ()  # in addition to the default pool
    tenants: tuple[UserTenant, ...] = ()  # with a RabbitMQ user each
    # The type of the due exchange of each exchange with delayed messages.
    delayed_exchanges: Mapping[DelayedExchange, ExchangeKind] = {}
    declaring: tuple[UserTenant, ...] = ()  # of `tenants`, which may declare their own queues
    # The queues of each tenant for replies and events, with the patterns of the events.
    tenant_queues: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    operators: tuple[OperatorName, ...] = ()  # people with a RabbitMQ user each
    # Bytes in the intake queue of each tenant, by the tenant policies. Null: the greatest bound.
    queued_bytes: Mapping[str, int | None] = {}
    passwords: Mapping[str, SecretStr] = {}  # by user name; a user without a password cannot log in

    @property
    def tenant_users(self) -> tuple[User, ...]:
        return tuple(
            tenant_user(each, declares=each in self.declaring)
            for each in dict.fromkeys(self.tenants)
        )

    @property
    def users(self) -> tuple[User, ...]:
        operators = map(operator_user, dict.fromkeys(self.operators))
        return (
            *service_users(),
            watchdog_user(),
            *human_users(),
            *operators,
            *self.tenant_users,
        )

    @model_validator(mode="after")
    def _declaring_tenants_exist(self) -> Self:
        if unknown := set(self.declaring) - set(self.tenants):
            reason = f"The tenant {min(unknown)!r}, which may declare queues, has no user."
            raise invalid("unknown_tenant", reason)
        return self

    @model_validator(mode="after")
    def _users_exist(self) -> Self:
        if unknown := set(self.passwords) - {user.name for user in self.users}:
            raise invalid("unknown_user", f"The password is for the unknown user {min(unknown)!r}.")
        return self


def definitions_file(options: InstallationOptions, salt: SaltSource) -> dict[str, Any]:
    """Return the content of the definitions file.

    The file contains the topology that services declare, so `HAREBELL_TOPOLOGY_MODE=check`
    accepts a broker that imported the file.
    """
    topology = SYSTEM
    for tenant in dict.fromkeys(options.tenants):
        topology += tenant_topology(tenant, options.tenant_queues.get(tenant))
    for pool in dict.fromkeys(options.pools):
        if pool != DEFAULT_POOL:
            topology += work_topology(pool)
    topology += delayed_topology(options.delayed_exchanges)
    vhost, users = options.vhost, options.users
    return {
        "vhosts": [{"name": vhost, "description": "Harebell: schedules and their runs"}],
        "users": [
            _user(user, options.passwords.get(user.name), salt, tenants=options.tenants)
            for user in users
        ],
        "permissions": [_permission(user, vhost) for user in users],
        "topic_permissions": list(_topic_permissions(users, vhost)),
        "exchanges": [_exchange(exchange, vhost) for exchange in topology.exchanges],
        "queues": [_queue(queue, vhost) for queue in topology.queues],
        "bindings": _bindings(topology, vhost),
        "policies": list(_policies(options)),
        "parameters": _limits(topology, options),
    }


def _policies(options: InstallationOptions) -> Iterator[dict[str, Any]]:
    """Yield the policies. One policy applies to a queue, so patterns of one priority differ.

    If a queue of Harebell is full it rejects messages, so that each publisher keeps its message.
    If one of a tenant is full, it drops its oldest message, because Harebell would be rejected.
    """
    commands = {"max-length": MAX_QUEUED_COMMANDS, "overflow": "reject-publish"}
    bounds: list[tuple[str, str, dict[str, Any]]] = [
        ("harebell-commands", _COMMANDS, commands | _max_bytes(MAX_COMMAND_BYTES)),
        (
            "harebell-delayed",
            starting_with(delayed_queue("").name),
            {"max-length": MAX_DELAYED_MESSAGES, "overflow": "reject-publish"}
            | _max_bytes(MAX_DELAYED_BYTES),
        ),
        (
            "harebell-undelivered",
            starting_with(undelivered_queue("").name),
            commands | _max_bytes(MAX_UNDELIVERED_BYTES),
        ),
        (
            "harebell-tickets",
            _TICKETS,
            {"max-length": MAX_QUEUED_BATCHES, "overflow": "reject-publish"}
            | _max_bytes(MAX_TICKET_BYTES),
        ),
        (
            "harebell-internal",
            _INTERNAL,
            {"overflow": "reject-publish"} | _max_bytes(MAX_INTERNAL_BYTES),
        ),
        ("harebell-recent", _RECENT, _max_bytes(MAX_RECENT_BYTES)),
    ]
    if options.tenants:
        limit = _max_bytes(MAX_TENANT_COMMAND_BYTES)
        bounds.append(("harebell-tenant-commands", _TENANT_COMMANDS, commands | limit))
        for tenant, size in options.queued_bytes.items():
            limit = _max_bytes(MAX_COMMAND_BYTES if size is None else min(size, MAX_COMMAND_BYTES))
            yield _policy(
                options.vhost,
                f"harebell-tenant-commands-{tenant}",
                any_of(re.escape(tenant_intake_queue(tenant).name)),
                definition=commands | limit,
                apply_to="queues",
                priority=1,  # before the policy of all intake queues of tenants
            )
    for tenant in dict.fromkeys(options.tenants):
        own_queues = any_of(starting_with(f"{tenant}."))
        bounds.append((f"harebell-tenant-{tenant}", own_queues, _max_bytes(MAX_TENANT_QUEUE_BYTES)))
    for name, pattern, definition in bounds:
        yield _policy(options.vhost, name, pattern, definition=definition, apply_to="queues")


def _max_bytes(size: int) -> dict[str, int]:
    return {"max-length-bytes": size}


def _limits(topology: Topology, options: InstallationOptions) -> list[dict[str, Any]]:
    """Return the limit of queues in the virtual host, because RabbitMQ has none for a user."""
    if not options.tenants:
        return []
    declaring = len(set(options.declaring))
    max_queues = len(topology.queues) + MAX_INSTANCE_QUEUES + declaring * MAX_TENANT_QUEUES
    return [
        {
            "component": "vhost-limits",
            "vhost": options.vhost,
            "name": "limits",
            "value": {"max-queues": max_queues},
        }
    ]


def password_hash(password: str, salt: bytes) -> str:
    """Return the hash that RabbitMQ stores: base64 of the salt and the salted digest."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _user(
    user: User, password: SecretStr | None, salt: SaltSource, *, tenants: Collection[str]
) -> dict[str, Any]:
    secret = "" if password is None else password.get_secret_value()
    return {
        "name": user.name,
        "password_hash": password_hash(secret, salt(SALT_BYTES)) if secret else NO_PASSWORD,
        "hashing_algorithm": HASHING,
        "tags": list(user.tags),
        "limits": _USER_LIMITS if user.name in tenants else {},
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
        for permission in user.topics:
            yield {
                "user": user.name,
                "vhost": vhost,
                "exchange": permission.exchange,
                "write": permission.write,
                "read": permission.read,
            }


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind.value,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": exchange.arguments(),
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


def _policy(
    vhost: str,
    name: str,
    pattern: str,
    *,
    definition: Mapping[str, Any],
    apply_to: str,
    priority: int = 0,
) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": vhost,
        "pattern": pattern,
        "apply-to": apply_to,
        "priority": priority,
        "definition": dict(definition),
    }
