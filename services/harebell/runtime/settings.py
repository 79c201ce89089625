"""Settings of the services: `HAREBELL_*` variables, checked once at start.

docs/operations/settings.md documents each setting.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from harebell.connection.amqp import parse_amqp_urls
from harebell.contract.errors import InvalidInput
from harebell.contract.message import invalid
from harebell.contract.schedule import DEFAULT_POOL, MAX_SIGNING_KEYS
from harebell.contract.secret import SecretName
from harebell.contract.types import Duration, Interval, PoolName, Tenant, duration_text
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.sender import DEFAULT_OPERATORS, IdentityMode, default_mode
from harebell.domain.tenant_policy import MAX_PATTERNS, DelayedExchange
from harebell.domain.trace_relation import MAX_CHILD_WAIT, TraceMode
from harebell.domain.url_policy import Egress, Network
from harebell.runtime.database_url import read_database_url

AMQP_FILES: Final = ("cafile", "certfile", "keyfile")  # parameters of an AMQP URL
PREFIX: Final = "HAREBELL_"
FILE_SUFFIX: Final = "_FILE"  # HAREBELL_AMQP_URL_FILE is the path of a file with the value
# The command line and the migration read these variables. A service ignores them.
OTHER_PROGRAMS_SETTINGS: Final = frozenset(
    {
        "TENANT",
        "EXCHANGE",
        "TIMEOUT",
        "OUTPUT",
        "ROLE_PASSWORD",
        "ROLE_PASSWORDS_FILE",
        "MIGRATION_WAIT",
        "MANAGEMENT_URL",
    }
)
SHARE_OF_ONE_OF_SEVERAL_TENANTS: Final = 0.75  # of the slots of a lane
MIN_POLL_INTERVAL: Final = timedelta(milliseconds=10)
MAX_POLL_INTERVAL: Final = timedelta(seconds=15)
MIN_BREAKER_WINDOW: Final = timedelta(seconds=1)
MIN_OPEN_DURATION: Final = timedelta(seconds=1)
MIN_RETENTION: Final = timedelta(days=1)  # the ledger has one partition for each day
MIN_RESULT_RETENTION: Final = timedelta(hours=1)  # within which a sender repeats a command


def _parse_networks(value: object) -> object:
    if isinstance(value, str):
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    return value


def _parse_names(value: object) -> object:
    """Split a list at commas and line ends."""
    if isinstance(value, str):
        parts = value.replace("\n", ",").split(",")
        return frozenset(part.strip() for part in parts if part.strip())
    return value


def _parse_delayed(value: object) -> object:
    """Return the tenant of each exchange from `orders=acme,mail=acme`."""
    if not isinstance(value, str):
        return value
    pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
    names = [name for name, _, _ in pairs]
    for name, equals, _ in pairs:
        if not equals:
            raise invalid(
                "invalid_setting", f"The exchange {name!r} must have a tenant: orders=acme."
            )
        if names.count(name) > 1:
            raise invalid("invalid_setting", f"The exchange {name!r} must have one tenant.")
    return {name: tenant for name, _, tenant in pairs}


def _parse_list(value: object) -> object:
    """Split a list at commas, in its order."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _read_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:  # ValueError: binary content, or a NUL in the path
        reason = f"The file of the setting must be readable text: {error}."
        raise InvalidInput(reason, field=variable, code="invalid_setting") from None


@dataclass(frozen=True, kw_only=True)
class PoolBounds:
    """The bounds of a connection pool.

    `min_size` connections stay open. Callers wait up to `acquire_timeout` seconds for a free one;
    after that, the database counts as unavailable.
    """

    min_size: int = 0
    max_size: int = 8
    acquire_timeout: float = 10.0


def _check_amqp_urls(urls: SecretStr) -> SecretStr:
    try:
        nodes = parse_amqp_urls(urls.get_secret_value())
    except InvalidInput as error:
        raise invalid(error.code, error.reason) from None
    for url in nodes:
        _check_files([url.query[name] for name in AMQP_FILES if name in url.query])
    return urls


def _check_database_url(url: SecretStr) -> SecretStr:
    try:
        address = read_database_url(url.get_secret_value())
    except InvalidInput as error:
        raise invalid(error.code, error.reason) from None
    _check_files(address.files)
    return url


def _check_files(paths: Sequence[str]) -> None:
    for path in paths:
        if not os.access(path, os.R_OK):
            reason = f"The URL names the file {path!r}, which must exist and be readable."
            raise invalid("invalid_setting", reason)


def _check_web_url(url: SecretStr) -> SecretStr:
    """Check the URL of a webhook. The error omits the URL, because its path is a secret."""
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        reason = "The webhook must be a URL such as https://chat.example/hooks/abc."
        raise invalid("invalid_setting", reason)
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        reason = "The webhook must be an https URL, because http is allowed on loopback only."
        raise invalid("invalid_setting", reason)
    return url


def _check_proxy_url(url: SecretStr) -> SecretStr:
    """Check the URL of a proxy. The error omits the URL, which may contain a password."""
    parts = urlsplit(url.get_secret_value())
    if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"}:
        reason = "The proxy must be a URL such as http://proxy.internal:3128."
        raise invalid("invalid_setting", reason)
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServiceSettings(BaseModel):
    """The settings of every service."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    _classes: ClassVar[list[type["ServiceSettings"]]] = []

    amqp_url: Annotated[SecretStr, AfterValidator(_check_amqp_urls)]  # one URL per cluster node
    database_url: Annotated[SecretStr, AfterValidator(_check_database_url)]
    # The maximum comes first, because the validator of the minimum compares both.
    database_pool_max: Annotated[int, Field(ge=1, le=200)] = PoolBounds.max_size
    database_pool_min: Annotated[int, Field(ge=0)] = PoolBounds.min_size
    database_pool_timeout: Interval = timedelta(seconds=PoolBounds.acquire_timeout)
    instance_id: str = "harebell"  # unique within a service
    http_host: str = "127.0.0.1"  # of /livez, /readyz and /metrics
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: a free port
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    run_log: Literal["off", "failures", "all"] = "failures"  # the transitions with a log line
    otel: bool = False  # export spans, as the OTEL_* variables define
    # A service that creates nothing needs no rights to do so, and a wrong address stays unchanged.
    topology_mode: Literal["declare", "check"] = "check"
    secrets_dir: Path | None = None  # contains one file <tenant>/<name> for each secret
    tenants_file: Path | None = None  # the tenant policies, which a service reads again
    # The tenant of each exchange with delayed messages, without a file of policies: orders=acme
    delayed_exchanges: Annotated[
        Mapping[DelayedExchange, Tenant],
        BeforeValidator(_parse_delayed),
        Field(max_length=MAX_PATTERNS),
    ] = {}
    # None: `verified` where the topology mode is `check`, and `routing_key` otherwise.
    identity: Annotated[IdentityMode | None, Field(validate_default=True)] = None
    # Logins that may act for every tenant and give the orders of the operators.
    # Tenants with queues of their own, in addition to the tenants in the file of tenant policies.
    tenants: Annotated[frozenset[Tenant], BeforeValidator(_parse_names)] = frozenset()
    operators: Annotated[frozenset[str], BeforeValidator(_parse_names)] = DEFAULT_OPERATORS
    testing: bool = False  # a failpoint needs it, so that no variable alone breaks production
    failpoint: str | None = None  # for tests: ticker.before_commit:kill

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        ServiceSettings._classes.append(cls)

    @field_validator("failpoint")
    @classmethod
    def _check_failpoint(cls, failpoint: str | None, info: ValidationInfo) -> str | None:
        if failpoint is not None and not info.data.get("testing"):
            reason = f"A failpoint is only for tests and needs {PREFIX}TESTING=1."
            raise invalid("invalid_setting", reason)
        return failpoint

    @field_validator("database_pool_min")
    @classmethod
    def _check_pool_min(cls, min_size: int, info: ValidationInfo) -> int:
        max_size = info.data.get("database_pool_max", min_size)
        if min_size > max_size:
            reason = f"The minimum must not exceed {PREFIX}DATABASE_POOL_MAX, which is {max_size}."
            raise invalid("invalid_setting", reason)
        return min_size

    @field_validator("identity")
    @classmethod
    def _check_identity(cls, mode: IdentityMode | None, info: ValidationInfo) -> IdentityMode:
        """Return the mode. A prepared broker has several tenants, so it requires `verified`."""
        default = default_mode(info.data.get("topology_mode", ""))
        if default is IdentityMode.VERIFIED and mode is IdentityMode.ROUTING_KEY:
            reason = (
                f"The identity must be {default} where {PREFIX}TOPOLOGY_MODE is check, "
                f"not {mode}, because a routing key proves no tenant."
            )
            raise invalid("invalid_setting", reason)
        return mode or default

    @property
    def identity_mode(self) -> IdentityMode:
        """The mode that applies, which the validator has set."""
        return self.identity or IdentityMode.VERIFIED

    @property
    def pool_bounds(self) -> PoolBounds:
        return PoolBounds(
            min_size=self.database_pool_min,
            max_size=self.database_pool_max,
            acquire_timeout=self.database_pool_timeout.total_seconds(),
        )

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings of a service from `HAREBELL_*` variables.

        A variable of another service is ignored, so that all services can share an environment.
        Raise `InvalidInput` with the name of the variable for an unknown name or a bad value.
        """
        classes: list[type[ServiceSettings]] = [ServiceSettings, *cls._classes]
        known = {name for each in classes for name in each.model_fields}
        values: dict[str, str] = {}
        for variable, value in environ.items():
            name = variable.removeprefix(PREFIX)
            if name == variable or name in OTHER_PROGRAMS_SETTINGS:
                continue
            is_file = name.endswith(FILE_SUFFIX) and name.lower() not in known
            field = (name.removesuffix(FILE_SUFFIX) if is_file else name).lower()
            if field not in known:
                reason = f"No setting has the name {variable}."
                raise InvalidInput(reason, field=variable, code="unknown_setting")
            values[field] = _read_file(variable, value) if is_file else value
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise _invalid_setting(error) from None


def _invalid_setting(error: ValidationError) -> InvalidInput:
    first = error.errors(include_url=False)[0]
    variable = PREFIX + str(first["loc"][0]).upper()
    if first["type"] == "missing":
        reason = f"The setting {variable} is required and missing."
        return InvalidInput(reason, field=variable, code="invalid_setting")
    own = first.get("ctx", {}).get("reason")
    reason = own or f"The value of the setting is invalid: {first['msg'].removesuffix('.')}."
    return InvalidInput(reason, field=variable, code="invalid_setting")


class TargetSettings(ServiceSettings):
    """The settings of services that check HTTP targets."""

    # Private networks that HTTP targets may reach: 10.1.0.0/16,127.0.0.0/8
    allowed_networks: Annotated[tuple[Network, ...], BeforeValidator(_parse_networks)] = ()
    # Networks that no HTTP target may reach, although they are public or allowed.
    denied_networks: Annotated[tuple[Network, ...], BeforeValidator(_parse_networks)] = ()

    @property
    def egress(self) -> Egress:
        """The networks of HTTP targets."""
        return Egress(self.allowed_networks, self.denied_networks)


class IntakeSettings(TargetSettings):
    """The settings of intake."""

    # Task names of all executors. None: intake accepts every task name.
    known_tasks: Annotated[frozenset[str] | None, BeforeValidator(_parse_names)] = None
    # `when` of schedules without one: {"every": "1h"}.
    # Per tenant: {"acme": {"cron": "0 * * * *"}}.
    default_when: Annotated[DefaultWhen, BeforeValidator(DefaultWhen.parse)] = DefaultWhen()
    # RabbitMQ overwrites the header timestamp_in_ms of each message, and delays begin at that time.
    broker_timestamps: bool = False


class TickerSettings(ServiceSettings):
    """The settings of the ticker.

    The horizon should be slightly longer than a delay TTL plus its margin.
    """

    horizon: Duration = timedelta(seconds=84)
    staging_batch: Annotated[int, Field(ge=1, le=10_000)] = 1_000  # schedules per staging pass
    # Between two passes that found few schedules. An interval within the horizon delays no run.
    min_poll_interval: Annotated[Duration, Field(ge=MIN_POLL_INTERVAL, le=MAX_POLL_INTERVAL)] = (
        timedelta(milliseconds=250)
    )
    # The ages after which rows are removed. A tenant policy replaces them for its tenant.
    run_retention: Annotated[Duration, Field(ge=MIN_RETENTION)] = timedelta(days=30)
    version_retention: Annotated[Duration, Field(ge=MIN_RETENTION)] = timedelta(days=90)
    ended_schedule_retention: Annotated[Duration, Field(ge=MIN_RETENTION)] = timedelta(days=30)
    bulk_operation_retention: Annotated[Duration, Field(ge=MIN_RETENTION)] = timedelta(days=30)
    command_result_retention: Annotated[Duration, Field(ge=MIN_RESULT_RETENTION)] = timedelta(
        hours=24
    )
    archive_dir: Path | None = None  # contains the removed runs; None: removed without an archive

    @field_validator("archive_dir")
    @classmethod
    def _check_archive_dir(cls, directory: Path | None) -> Path | None:
        if directory is not None and not os.access(directory, os.W_OK | os.X_OK):
            reason = f"The archive must be an existing and writable directory, not {directory}."
            raise invalid("invalid_setting", reason)
        return directory


class DispatcherSettings(ServiceSettings):
    """The settings of the dispatcher.

    A breaker opens when the failure ratio of at least the minimum of calls within the window is
    reached. With fewer calls, the number of consecutive failures decides, and 0 disables this.
    """

    work_batch_size: Annotated[int, Field(ge=1, le=200)] = 50  # tickets in one work message
    breaker_mode: Literal["auto", "manual"] = "auto"  # manual: only forced states apply
    breaker_window: Annotated[Duration, Field(ge=MIN_BREAKER_WINDOW)] = timedelta(seconds=60)
    breaker_min_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    breaker_failure_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    breaker_consecutive_failures: Annotated[int, Field(ge=0, le=1_000)] = 5
    breaker_open_duration: Annotated[Duration, Field(ge=MIN_OPEN_DURATION)] = timedelta(seconds=30)
    breaker_half_open_calls: Annotated[int, Field(ge=1, le=1_000)] = 3  # of each dispatcher
    # The wait for a snapshot from a ticker before the first release.
    breaker_startup_timeout: Duration = timedelta(seconds=10)
    # Runs per second of all tenants for one target, of each dispatcher. None: no bound.
    max_target_rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None


class ExecutorSettings(TargetSettings):
    """The settings of the executor. Slots are concurrent attempts of a lane."""

    pool: PoolName = DEFAULT_POOL
    slots_high: Annotated[int, Field(ge=1, le=10_000)] = 60
    slots_normal: Annotated[int, Field(ge=1, le=10_000)] = 40
    slots_low: Annotated[int, Field(ge=1, le=10_000)] = 10
    # The share of a tenant's slots for one target, so that a slow target leaves slots for others.
    max_target_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    # The share of a lane's slots for one tenant, so that a run of another tenant starts at once.
    # None: three quarters with a file of tenant policies, and every slot without one.
    max_tenant_share: Annotated[float, Field(gt=0, le=1)] | None = None
    lease: Duration = timedelta(seconds=15)
    lease_critical: Annotated[Duration, Field(validate_default=True)] = timedelta(seconds=5)
    example_tasks: bool = False  # harebell.echo and harebell.sleep, for the local stack
    egress_proxy: Annotated[SecretStr, AfterValidator(_check_proxy_url)] | None = None
    shutdown_timeout: Duration = timedelta(seconds=25)  # for attempts in flight at the stop
    # Whether the span of an attempt continues the trace of its command.
    trace: TraceMode = TraceMode.AUTO
    trace_max_wait: Duration = MAX_CHILD_WAIT  # between the command and an attempt in its trace

    @field_validator("lease_critical")
    @classmethod
    def _check_lease_critical(cls, critical: timedelta, info: ValidationInfo) -> timedelta:
        """Require a shorter lease for critical runs, so that their recovery is faster."""
        lease = info.data.get("lease")  # None if the lease is invalid, which has its own error
        if lease is not None and critical >= lease:
            reason = (
                f"The lease of critical runs must be shorter than {PREFIX}LEASE, "
                f"which is {duration_text(lease)}, not {duration_text(critical)}."
            )
            raise invalid("invalid_setting", reason)
        return critical

    @property
    def proxy_url(self) -> str | None:
        """The proxy of HTTP targets."""
        return None if self.egress_proxy is None else self.egress_proxy.get_secret_value()

    @property
    def tenant_share(self) -> float:
        """The maximum share of the slots of a lane for one tenant."""
        if self.max_tenant_share is not None:
            return self.max_tenant_share
        return 1.0 if self.tenants_file is None else SHARE_OF_ONE_OF_SEVERAL_TENANTS

    @property
    def slots(self) -> int:
        """The slots of all lanes."""
        return self.slots_high + self.slots_normal + self.slots_low


class DlqInspectorSettings(ServiceSettings):
    """The settings of the dlq_inspector. Maintenance deletes the oldest dead letters first."""

    dead_letter_retention: Annotated[Duration, Field(ge=timedelta(days=1))] = timedelta(days=90)
    dead_letter_max_count: Annotated[int, Field(ge=1_000)] = 1_000_000
    # More new dead letters of a tenant than this within the window cause an alert.
    alert_dead_letter_count: Annotated[int, Field(ge=0)] = 10
    alert_window: Interval = timedelta(minutes=15)
    alert_replay_stalled_after: Interval = timedelta(minutes=10)
    alert_webhook_url: Annotated[SecretStr, AfterValidator(_check_web_url)] | None = None
    # The secrets of the tenant harebell with the keys that sign alerts: alerts-2026b,alerts-2026a
    alert_signing: Annotated[
        tuple[SecretName, ...], BeforeValidator(_parse_list), Field(max_length=MAX_SIGNING_KEYS)
    ] = ()
