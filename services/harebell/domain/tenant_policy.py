"""The tenant policies: one document of an operator that bounds what each tenant may use.

Intake judges each definition, and the executor judges each attempt again, because edits, replays,
rollbacks and changes of the document come after intake.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    model_validator,
)
from yarl import URL

from harebell.contract.amqp_names import MAX_DELAYED_EXCHANGE, due_exchange
from harebell.contract.errors import InvalidInput
from harebell.contract.message import StrictMessage, empty_default, invalid, parse, quoted
from harebell.contract.schedule import DEFAULT_POOL
from harebell.contract.secret import SecretRef
from harebell.contract.types import Duration, ShortText, Tenant
from harebell.domain.url_policy import Network

ANY: Final = "*"  # the pattern that every name matches
MAX_PATTERNS: Final = 1_000  # patterns or values of one field
MAX_QUEUES: Final = 100  # of a tenant, and event patterns of a queue
MAX_QUEUE_NAME: Final = 127  # characters
MAX_SIGNING_KEYS: Final = 8  # of a tenant; a rotation needs two
MAX_PRIORITY: Final = 10
MAX_RATE: Final = 1_000_000.0  # per second
RESERVED_LOGIN_PREFIX: Final = "harebell_"  # of the logins of services and operators

_RESERVED_EXCHANGES: Final = ("harebell.", "amq.")
_SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|TiB)", re.ASCII)
_SIZE_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_HOST: Final = re.compile(r"[^\s/?#@*\[\]]{1,253}")

_NOUNS: Final = {"logins": "login", "delayed_exchanges": "exchange"}

Q = TypeVar("Q", bound=StrictMessage)


def parse_size(value: object) -> object:
    """Return the bytes of a size such as `64MiB`. Raise an error for another form."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        reason = f"The size must be such as 64MiB, or a number of bytes, not {quoted(value)}."
        raise invalid("invalid_size", reason)
    return int(found[1]) * _SIZE_UNITS[found[2]]


def size_text(size: int) -> str:
    """Return the size in its largest whole unit: `64MiB`."""
    for unit, factor in reversed(_SIZE_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def _check_pattern(pattern: str) -> str:
    if ANY in pattern[:-1]:
        reason = f"The name may contain * only as its last character, not {quoted(pattern)}."
        raise invalid("invalid_pattern", reason)
    return pattern


def _check_exchange(pattern: str) -> str:
    if pattern.startswith(_RESERVED_EXCHANGES):
        reason = f"The name must not begin with harebell. or amq., not {quoted(pattern)}."
        raise invalid("reserved_exchange", reason)
    return pattern


def _check_delayed_exchange(name: str) -> str:
    if ANY in name:
        reason = f"The name must be that of one exchange, without *, not {quoted(name)}."
        raise invalid("invalid_exchange", reason)
    return name


def _check_host(pattern: str) -> str:
    """Return the pattern with its host as yarl reads it, so that both sides compare equal."""
    prefix = "*." if pattern.startswith("*.") else ""
    host = pattern.removeprefix(prefix)
    if pattern == ANY:
        return pattern
    try:
        if not _HOST.fullmatch(host) or (prefix and ":" in host):
            raise ValueError  # noqa: TRY301  # one reason for all forms
        return prefix + (URL.build(scheme="http", host=host).host or "").rstrip(".").lower()
    except ValueError:
        reason = (
            "The host must be a name, an address, *.example.com or *, without a port, "
            f"not {quoted(pattern)}."
        )
        raise invalid("invalid_host", reason) from None


def _parse_network(value: object) -> object:
    if value == ANY or not isinstance(value, str):
        return value
    try:
        return ip_network(value)
    except ValueError as error:
        raise invalid(
            "invalid_network", f"The network must be such as 10.1.0.0/16: {error}."
        ) from None


def _check_login(login: str) -> str:
    if login.startswith(RESERVED_LOGIN_PREFIX):
        reason = (
            f"The login must not begin with {RESERVED_LOGIN_PREFIX}, because such logins belong "
            f"to services and operators, not {quoted(login)}."
        )
        raise invalid("reserved_login", reason)
    return login


EventPattern = Annotated[
    str, StringConstraints(pattern=r"^[a-z_*#]+(\.[a-z_*#]+)*$", max_length=64)
]
EventPatterns = Annotated[tuple[EventPattern, ...], Field(max_length=MAX_QUEUES)]
NamePattern = Annotated[ShortText, AfterValidator(_check_pattern)]
ExchangePattern = Annotated[NamePattern, AfterValidator(_check_exchange)]
DelayedExchange = Annotated[
    ShortText,
    StringConstraints(max_length=MAX_DELAYED_EXCHANGE),
    AfterValidator(_check_exchange),
    AfterValidator(_check_delayed_exchange),
]
HostPattern = Annotated[ShortText, AfterValidator(_check_host)]
Port = Annotated[int, Field(ge=1, le=65_535, strict=True)]
Login = Annotated[ShortText, StringConstraints(max_length=255), AfterValidator(_check_login)]
AllowedNetwork = Annotated[Network | Literal["*"], BeforeValidator(_parse_network)]
Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Quota = Annotated[int, Field(ge=0, strict=True)]
PositiveQuota = Annotated[int, Field(ge=1, strict=True)]
RetentionAge = Annotated[Duration, Field(ge=timedelta(days=1))]
ResultAge = Annotated[Duration, Field(ge=timedelta(hours=1))]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=1),
    PlainSerializer(size_text, return_type=str, when_used="json"),
]


class LiteralSecrets(StrEnum):
    """The treatment of a literal value in a header that usually carries a secret."""

    WARN = "warn"
    REFUSE = "refuse"


class TenantTls(StrictMessage):
    """The CA and the client certificate of the HTTP calls of a tenant, in secrets, as PEM.

    Without `ca`, the CAs of the system verify the servers.
    """

    ca: SecretRef | None = None
    certificate: SecretRef | None = None
    key: SecretRef | None = None

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            reason = "The fields certificate and key must both be present or both be absent."
            raise invalid("invalid_tls", reason)
        return self


class Quotas(StrictMessage):
    """The quotas of one tenant. A quota that is null does not exist."""

    schedules: Quota | None = 10_000
    puts_per_second: Rate | None = 500.0
    runs_per_second: Rate | None = 100.0
    queued_bytes: Size | None = 64 * 2**20
    concurrent_runs: PositiveQuota | None = 200
    dead_letters: PositiveQuota | None = 10_000
    backfill_runs: Quota | None = 10_000
    retry_min_wait: Duration | None = timedelta(milliseconds=100)


class TenantRetention(StrictMessage):
    """The ages after which rows of one tenant are removed. The setting replaces null."""

    runs: RetentionAge | None = None
    versions: RetentionAge | None = None
    ended_schedules: RetentionAge | None = None
    bulk_operations: RetentionAge | None = None
    command_results: ResultAge | None = None


NO_QUOTAS: Final[dict[str, None]] = dict.fromkeys(Quotas.model_fields)


@dataclass(frozen=True, slots=True)
class NameSet:
    """The names that a list of patterns permits. A pattern that ends with `*` is a prefix."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Self:
        """Return the set of the patterns."""
        names = frozenset(each for each in patterns if not each.endswith(ANY))
        return cls(names, tuple(each[:-1] for each in patterns if each.endswith(ANY)))


class TenantPolicy(StrictMessage):
    """The policy of one tenant. The defaults are those of a document without `defaults`.

    A tenant may always publish to the exchanges `<tenant>.*`, besides `exchanges`, and name the
    queues `<tenant>.*` for replies, besides `reply_queues`. `signing` contains the signing keys,
    the current key first. The messages of `delayed_exchanges` belong to the tenant, and it may
    publish to their due exchanges. `queues` contains the queues of the tenant for replies and for
    events, each with the patterns of its events. With `declares`, the login of the tenant may also
    declare exchanges and queues `<tenant>.*` itself. Only the definitions file reads both fields.
    Without `excerpts`, no attempt keeps what its target sent.
    """

    logins: Annotated[tuple[Login, ...], Field(max_length=MAX_PATTERNS)] = ()
    delayed_exchanges: Annotated[tuple[DelayedExchange, ...], Field(max_length=MAX_PATTERNS)] = ()
    exchanges: Annotated[tuple[ExchangePattern, ...], Field(max_length=MAX_PATTERNS)] = ()
    queues: Annotated[dict[ShortText, EventPatterns], Field(max_length=MAX_QUEUES)] = empty_default(
        dict
    )
    declares: Annotated[bool, Field(strict=True)] = False
    reply_queues: Annotated[tuple[ExchangePattern, ...], Field(max_length=MAX_PATTERNS)] = ()
    pools: Annotated[tuple[NamePattern, ...], Field(max_length=MAX_PATTERNS)] = (DEFAULT_POOL,)
    tasks: Annotated[tuple[NamePattern, ...], Field(max_length=MAX_PATTERNS)] = (ANY,)
    hosts: Annotated[tuple[HostPattern, ...], Field(max_length=MAX_PATTERNS)] = (ANY,)
    ports: Annotated[tuple[Port | Literal["*"], ...], Field(max_length=MAX_PATTERNS)] = (80, 443)
    networks: Annotated[tuple[AllowedNetwork, ...], Field(max_length=MAX_PATTERNS)] = (ANY,)
    priority_max: Annotated[int, Field(ge=1, le=MAX_PRIORITY, strict=True)] = MAX_PRIORITY
    literal_secrets: LiteralSecrets = LiteralSecrets.WARN
    excerpts: Annotated[bool, Field(strict=True)] = True
    quotas: Quotas = Quotas()
    retention: TenantRetention = TenantRetention()
    signing: Annotated[tuple[SecretRef, ...], Field(max_length=MAX_SIGNING_KEYS)] = ()
    tls: TenantTls | None = None

    def may_publish(self, tenant: str, exchange: str) -> bool:
        """Return whether the tenant may publish to the exchange."""
        return (
            exchange.startswith(f"{tenant}.")
            or exchange in self._exchange_names
            or exchange in self._due_exchanges
        )

    def may_receive_replies(self, tenant: str, queue: str) -> bool:
        """Return whether a message of the tenant may name the queue in `reply_to`."""
        return queue.startswith(f"{tenant}.") or queue in self._reply_queue_names

    def has_pool(self, pool: str) -> bool:
        """Return whether the pool is permitted."""
        return pool in self._pool_names

    def has_task(self, task: str) -> bool:
        """Return whether the task is permitted."""
        return task in self._task_names

    def has_host(self, host: str) -> bool:
        """Return whether the host of a URL, in lower case, is permitted."""
        names, endings = self._host_names
        return host in names or host.endswith(endings)

    def has_port(self, port: int) -> bool:
        """Return whether the port of a public address is permitted."""
        return port in self._port_set or ANY in self._port_set

    @cached_property
    def restricts_http(self) -> bool:
        """Return whether the policy restricts hosts, ports or private networks."""
        return any(ANY not in each for each in (self.hosts, self.ports, self.networks))

    @cached_property
    def allowed_networks(self) -> tuple[Network, ...] | None:
        """Return the private networks of the policy, or None for every allowed network."""
        if ANY in self.networks:
            return None
        return tuple(each for each in self.networks if each != ANY)

    @cached_property
    def _exchange_names(self) -> NameSet:
        return NameSet.of(self.exchanges)

    @cached_property
    def _due_exchanges(self) -> frozenset[str]:
        return frozenset(map(due_exchange, self.delayed_exchanges))

    @cached_property
    def _reply_queue_names(self) -> NameSet:
        return NameSet.of(self.reply_queues)

    @cached_property
    def _pool_names(self) -> NameSet:
        return NameSet.of(self.pools)

    @cached_property
    def _task_names(self) -> NameSet:
        return NameSet.of(self.tasks)

    @cached_property
    def _host_names(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the names and the endings that the patterns permit."""
        endings = tuple(each[1:] for each in self.hosts if each.startswith(ANY))
        return frozenset(each for each in self.hosts if not each.startswith(ANY)), endings

    @cached_property
    def _port_set(self) -> frozenset[int | str]:
        return frozenset(self.ports)


class TenantsDocument(StrictMessage):
    """The document in `HAREBELL_TENANTS_FILE`, as an operator writes it."""

    defaults: TenantPolicy = TenantPolicy()
    tenants: dict[Tenant, TenantPolicy] = empty_default(dict)


class PolicySource(Protocol):
    """The source of the policies in force, which a reload replaces."""

    @property
    def current(self) -> "TenantPolicies":
        """Return the policies in force."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicies:
    """The policies of all tenants. A tenant that the document omits has the defaults."""

    defaults: TenantPolicy
    tenants: Mapping[str, TenantPolicy]  # merged with the defaults
    _tenants_of_logins: Mapping[str, str]
    _tenants_of_delayed: Mapping[str, str]

    @classmethod
    def parse(cls, document: object) -> Self:
        """Return the policies of a decoded document.

        Raise `InvalidInput` with the field and the reason of the first fault.
        """
        parsed = parse(TenantsDocument, {} if document is None else document)
        if parsed.defaults.logins:
            reason = "The defaults must not contain logins, because a login has one tenant."
            raise InvalidInput(reason, field="defaults.logins", code="invalid_login")
        if parsed.defaults.delayed_exchanges:
            reason = "The defaults must not contain exchanges here, because one has one tenant."
            field = "defaults.delayed_exchanges"
            raise InvalidInput(reason, field=field, code="invalid_exchange")
        if parsed.defaults.queues:
            reason = "The defaults must not contain queues, because a queue has one tenant."
            raise InvalidInput(reason, field="defaults.queues", code="invalid_queue")
        for tenant, entry in parsed.tenants.items():
            _check_queues(tenant, entry.queues)
        tenants = {
            tenant: _merged(parsed.defaults, entry) for tenant, entry in parsed.tenants.items()
        }
        return cls(
            defaults=parsed.defaults,
            tenants=tenants,
            _tenants_of_logins=_tenants_of(tenants, "logins", code="invalid_login"),
            _tenants_of_delayed=_tenants_of(tenants, "delayed_exchanges", code="invalid_exchange"),
        )

    @classmethod
    def unrestricted(
        cls, *, exchanges: tuple[str, ...] = (ANY,), delayed: Mapping[str, str] | None = None
    ) -> Self:
        """Return the policies of an installation without a document.

        Only the built-in bounds apply, and `exchanges` besides `<tenant>.*`, also for replies.
        `delayed` contains the tenant of each exchange with delayed messages.
        """
        every = (ANY,)
        fields: dict[str, Any] = {"pools": every, "tasks": every, "hosts": every, "ports": every}
        fields["reply_queues"] = exchanges
        quotas = Quotas(**NO_QUOTAS)
        defaults = TenantPolicy(**fields, exchanges=exchanges, networks=every, quotas=quotas)
        owners = dict(delayed or {})
        tenants = {
            tenant: _merged(defaults, TenantPolicy(delayed_exchanges=tuple(names)))
            for tenant, names in _by_tenant(owners).items()
        }
        return cls(
            defaults=defaults, tenants=tenants, _tenants_of_logins={}, _tenants_of_delayed=owners
        )

    @property
    def current(self) -> Self:
        """Return the policies, so that fixed policies can replace those of a keeper."""
        return self

    def of(self, tenant: str) -> TenantPolicy:
        """Return the policy of a tenant. The result stays the same object until a reload."""
        return self.tenants.get(tenant, self.defaults)

    @property
    def delayed_exchanges(self) -> Collection[str]:
        """Return the exchanges of every tenant whose messages are delayed."""
        return self._tenants_of_delayed.keys()

    def tenant_of_delayed(self, exchange: str) -> str | None:
        """Return the tenant of the delayed messages of an exchange, or None without one."""
        return self._tenants_of_delayed.get(exchange)

    def logins(self, tenant: str) -> frozenset[str]:
        """Return the logins of a tenant, by default only the login with the tenant's name.

        A login that the document gives to another tenant never belongs to this tenant.
        """
        if listed := self.of(tenant).logins:
            return frozenset(listed)
        is_default = self._tenants_of_logins.get(tenant, tenant) == tenant
        return frozenset({tenant} if is_default else ())


def _merged(defaults: TenantPolicy, entry: TenantPolicy) -> TenantPolicy:
    """Return the entry with the defaults of the fields that the entry omits.

    The fields of `quotas` and of `retention` are merged one by one.
    """
    given = {name: getattr(entry, name) for name in entry.model_fields_set}
    merged = {
        "quotas": _overridden(defaults.quotas, entry.quotas),
        "retention": _overridden(defaults.retention, entry.retention),
    }
    return _overridden(defaults, TenantPolicy(**given | merged))


def _overridden(defaults: Q, entry: Q) -> Q:
    # A copy of `defaults` would also copy its cached properties.
    return type(entry).model_validate(
        {
            name: getattr(entry if name in entry.model_fields_set else defaults, name)
            for name in type(entry).model_fields
        }
    )


def _tenants_of(tenants: Mapping[str, TenantPolicy], field: str, *, code: str) -> dict[str, str]:
    """Return the tenant of each name in a field. Raise `InvalidInput` for a name of two tenants."""
    owners: dict[str, str] = {}
    for tenant, policy in tenants.items():
        for index, name in enumerate(getattr(policy, field)):
            owner = owners.setdefault(name, tenant)
            if owner != tenant:
                what = _NOUNS[field]
                reason = f"The {what} must have one tenant, but {quoted(name)} is in {owner}, too."
                path = f"tenants.{tenant}.{field}[{index}]"
                raise InvalidInput(reason, field=path, code=code)
    return owners


def _check_queues(tenant: str, names: Iterable[str]) -> None:
    """Raise `InvalidInput` for a queue whose name does not begin with the name of the tenant."""
    for name in names:
        if not name.startswith(f"{tenant}.") or len(name) > MAX_QUEUE_NAME:
            reason = (
                f"The name must begin with '{tenant}.' and have at most {MAX_QUEUE_NAME} "
                f"characters, not {quoted(name)}."
            )
            raise InvalidInput(reason, field=f"tenants.{tenant}.queues", code="invalid_queue")


def _by_tenant(owners: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, tenant in owners.items():
        names.setdefault(tenant, []).append(name)
    return names
