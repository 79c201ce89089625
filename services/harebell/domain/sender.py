"""The sender of a command or a query: the rule that accepts or refuses its message (pure).

Topic permissions are checked where a client publishes to a topic exchange or binds from it.
They are not checked where that exchange is a destination, so the routing key proves no tenant.
But the broker also verifies `user_id`, which every route keeps.
And a queue of one tenant proves the tenant, because only that tenant's exchange leads to it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from harebell.contract.amqp_names import OPERATIONS_TENANT, message_key, split_key
from harebell.contract.errors import NotAllowed
from harebell.contract.message import quoted
from harebell.contract.types import Tenant

FOREIGN_ROUTE: Final = "foreign_route"
NOT_YOUR_TENANT: Final = "not_your_tenant"
UNKNOWN_TENANT: Final = "_unknown"  # no tenant can use this name
MAX_KNOWN_KEYS: Final = 1_000  # routing keys whose parts are kept
DEFAULT_OPERATORS: Final = frozenset({"harebell_operator"})
# The logins of the definitions file that publish messages between services.
SERVICES: Final = frozenset(
    f"harebell_{each}"
    for each in ("intake", "ticker", "dispatcher", "executor", "dlq_inspector", "watchdog")
)
FOREIGN_SENDER: Final = "foreign_sender"
# The dlq_inspector publishes replayed commands. A header has the login that the broker verified
# when their sender published them.
REPLAYERS: Final = frozenset({"harebell_dlq_inspector"})

_TENANT: Final[TypeAdapter[str]] = TypeAdapter(Tenant)


class IdentityMode(StrEnum):
    """The proof of the tenant: the verified `user_id`, or the routing key, which proves nothing."""

    VERIFIED = "verified"
    ROUTING_KEY = "routing_key"


def default_mode(topology_mode: str) -> IdentityMode:
    """Return the mode without a setting. A prepared broker (`check`) has a user per tenant."""
    return IdentityMode.VERIFIED if topology_mode == "check" else IdentityMode.ROUTING_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The properties of a message that show its sender and its way through the broker."""

    exchange: str  # to which the sender published
    routing_key: str
    user_id: str | None = None  # verified by the broker
    was_dead_lettered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The sender of a message, and the tenant for which the sender acts.

    `login` is None if the message has no `user_id`, which only `routing_key` accepts.
    """

    login: str | None
    tenant: str
    is_operator: bool = False


def own_login(tenant: str) -> Collection[str]:
    """Return the default logins of a tenant: the login with the name of the tenant."""
    return (tenant,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderPolicy:
    """The settings that decide about senders. `logins_of` returns the logins of a tenant."""

    mode: IdentityMode = IdentityMode.VERIFIED
    operators: frozenset[str] = DEFAULT_OPERATORS
    logins_of: Callable[[str], Collection[str]] = own_login


def check_route(route: Route, expected_exchange: str) -> None:
    """Raise `NotAllowed` unless the sender published the message to the expected exchange."""
    if route.exchange != expected_exchange:
        found = quoted(route.exchange)
        reason = f"The message must be published to {expected_exchange}, not to {found}."
        raise NotAllowed(reason, code=FOREIGN_ROUTE)
    if route.was_dead_lettered:
        reason = "The message must come from its sender, but a queue has dead-lettered the message."
        raise NotAllowed(reason, code=FOREIGN_ROUTE)


def identify(route: Route, policy: SenderPolicy, *, owner: str | None = None) -> Sender:
    """Return the sender of a message. Raise `NotAllowed` for a login of another tenant.

    `owner` is the tenant of the queue, which must be that of the routing key too.
    """
    tenant, verb = parse_routing_key(route.routing_key)
    if owner not in (None, tenant):
        key = quoted(route.routing_key)
        reason = f"The routing key must begin with '{owner}.' at this exchange, not {key}."
        raise NotAllowed(reason, field="routing_key", code=NOT_YOUR_TENANT)
    login = route.user_id or None
    is_operator = login in policy.operators
    if policy.mode is IdentityMode.ROUTING_KEY:
        is_operator = is_operator or tenant == OPERATIONS_TENANT
    elif not is_operator:
        _check_login(login, policy, tenant=tenant, verb=verb)
    return Sender(login=login, tenant=tenant, is_operator=is_operator)


def _check_login(login: str | None, policy: SenderPolicy, *, tenant: str, verb: str) -> None:
    if login is None:
        reason = "The message must have the property user_id with the login of its sender."
        raise NotAllowed(reason, field="user_id", code=NOT_YOUR_TENANT)
    if tenant == OPERATIONS_TENANT:
        key = message_key(tenant, verb)
        reason = f"The login {quoted(login)} must be a login of the operators for {quoted(key)}."
        raise NotAllowed(reason, field="user_id", code=NOT_YOUR_TENANT)
    if login not in policy.logins_of(tenant):
        reason = f"The login {quoted(login)} must be a login of the tenant {quoted(tenant)}."
        raise NotAllowed(reason, field="user_id", code=NOT_YOUR_TENANT)


def is_service(login: str | None, mode: IdentityMode, own_login: str) -> bool:
    """Return whether the login publishes messages between services.

    Without verified logins, the permissions of the broker alone separate these messages.
    """
    return mode is IdentityMode.ROUTING_KEY or login in SERVICES or login == own_login


@lru_cache(maxsize=MAX_KNOWN_KEYS)
def parse_routing_key(routing_key: str) -> tuple[str, str]:
    """Return the tenant and the verb. An invalid tenant becomes `UNKNOWN_TENANT`."""
    tenant, verb = split_key(routing_key)
    try:
        return _TENANT.validate_python(tenant), verb
    except ValidationError:
        return UNKNOWN_TENANT, verb
