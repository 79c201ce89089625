"""The only shape of configuration: `HAREBELL_*`, read once at start, wrong names refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from harebell.client.connection import parse_amqp_urls
from harebell.contract.errors import InvalidInput
from harebell.contract.message import invalid
from harebell.contract.schedule import DEFAULT_POOL
from harebell.contract.types import Duration, Interval, PoolName, duration_text
from harebell.domain.default_schedule import DefaultWhen

PREFIX: Final = "HAREBELL_"
FILE_SUFFIX: Final = "_FILE"  # HAREBELL_AMQP_URL_FILE names a file that holds the value
# Of the command line and the local stack; a service that meets them ignores them.
OTHER_PROGRAMS_SETTINGS: Final = frozenset({"TENANT", "TIMEOUT", "OUTPUT", "ROLE_PASSWORD"})
SHORTEST_GAP: Final = timedelta(milliseconds=10)
LONGEST_GAP: Final = timedelta(seconds=15)
SHORTEST_WINDOW: Final = timedelta(seconds=1)
SHORTEST_REST: Final = timedelta(seconds=1)
COMMANDS: Final = (
    "APPLY_",
    "AUDIT_",
    *("BREAKER_AUTO_", "BREAKER_CLOSE_", "BREAKER_LIST_", "BREAKER_OPEN_"),
    "DEV_",
    "DLQ_",
    "EXPORT_",
    "RUN_",
    "SCHEDULE_",
    "TOPOLOGY_",
    "WHY_",
)

Network = IPv4Network | IPv6Network


def _networks(value: object) -> object:
    if isinstance(value, str):
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    return value


def _names(value: object) -> object:
    """With commas or on lines, as a file has them."""
    if isinstance(value, str):
        parts = value.replace("\n", ",").split(",")
        return frozenset(part.strip() for part in parts if part.strip())
    return value


def _content(variable: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:  # ValueError: not text, or a NUL in the path
        raise InvalidInput(
            f"cannot be read: {error}", field=variable, code="invalid_setting"
        ) from None


@dataclass(frozen=True)
class PoolBounds:
    """Of the connections to the database. What finds none free waits its turn."""

    min_size: int = 0  # kept open
    max_size: int = 8
    acquire_timeout: float = 10.0  # seconds of waiting, after which the database counts as away


def _reachable(urls: SecretStr) -> SecretStr:
    try:
        parse_amqp_urls(urls.get_secret_value())
    except InvalidInput as error:
        raise invalid(error.code, error.reason) from None
    return urls


def _web(url: SecretStr) -> SecretStr:
    """Without showing it: the path of a chat's webhook is its password."""
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise invalid("invalid_setting", "is not like https://chat.example/hooks/abc")
    return url


class ServiceSettings(BaseSettings):
    """What every service can be told."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")
    _classes: ClassVar[list[type["ServiceSettings"]]] = []

    amqp_url: Annotated[SecretStr, AfterValidator(_reachable)]  # nodes of a cluster: with commas
    database_url: SecretStr
    # max before min, which is compared with it
    database_pool_max: Annotated[int, Field(ge=1, le=200)] = PoolBounds.max_size
    database_pool_min: Annotated[int, Field(ge=0)] = PoolBounds.min_size
    database_pool_timeout: Interval = timedelta(seconds=PoolBounds.acquire_timeout)
    instance_id: str = "harebell"  # of this instance, unique among its kind
    http_host: str = "127.0.0.1"  # where health and metrics answer
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: any free one
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    topology_mode: Literal["declare", "check"] = "declare"
    failpoint: str | None = None  # tests only: ticker.before_commit:kill

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[arg-type]  # pydantic's own keywords
        ServiceSettings._classes.append(cls)

    @field_validator("database_pool_min")
    @classmethod
    def _up_to_max(cls, least: int, others: ValidationInfo) -> int:
        most = others.data.get("database_pool_max", least)
        if least > most:
            raise ValueError(f"must not exceed {PREFIX}DATABASE_POOL_MAX, which is {most}")
        return least

    @property
    def pool_bounds(self) -> PoolBounds:
        timeout = self.database_pool_timeout.total_seconds()
        return PoolBounds(self.database_pool_min, self.database_pool_max, timeout)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` hands in: the library would read the environment behind its back."""
        return (init_settings,)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Raises `Malformed` with the variable's name."""
        classes: list[type[ServiceSettings]] = [ServiceSettings, *cls._classes]
        known = {name for each in classes for name in each.model_fields}
        values: dict[str, str] = {}
        for variable, value in environ.items():
            name = variable.removeprefix(PREFIX)
            if name == variable or name in OTHER_PROGRAMS_SETTINGS or name.startswith(COMMANDS):
                continue
            field = name.removesuffix(FILE_SUFFIX).lower()
            if field not in known:
                raise InvalidInput(
                    "there is no such setting", field=variable, code="unknown_setting"
                )
            is_file = name.endswith(FILE_SUFFIX)
            values[field] = _content(variable, value) if is_file else value
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            variable = PREFIX + str(first["loc"][0]).upper()
            raise InvalidInput(first["msg"], field=variable, code="invalid_setting") from None


class TargetSettings(ServiceSettings):
    """Who looks at HTTP targets."""

    # private addresses that HTTP targets may reach: 10.1.0.0/16,127.0.0.0/8
    allowed_networks: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_networks)] = ()


class IntakeSettings(TargetSettings):
    # tasks that executors have; None: not known here, so any name may be one
    known_tasks: Annotated[frozenset[str] | None, NoDecode, BeforeValidator(_names)] = None
    # of schedules without `when`: {"every": "1h"}, or by tenant {"acme": {"cron": "0 * * * *"}}
    default_when: Annotated[DefaultWhen, BeforeValidator(DefaultWhen.parse)] = DefaultWhen()


class TickerSettings(ServiceSettings):
    """`horizon` should lie just above a delay tier plus its margin."""

    horizon: Duration = timedelta(seconds=84)  # how far ahead runs are staged into the broker
    staging_batch: Annotated[int, Field(ge=1, le=10_000)] = 1_000  # schedules a pass
    # at least between passes that found little; well within the horizon it makes nothing late
    min_poll_interval: Annotated[Duration, Field(ge=SHORTEST_GAP, le=LONGEST_GAP)] = timedelta(
        milliseconds=250
    )


class DispatcherSettings(ServiceSettings):
    """Breakers open when `ratio` of at least `attempts` of the last `window` have failed."""

    work_batch_size: Annotated[int, Field(ge=1, le=200)] = 50  # tickets in one work message
    breaker_mode: Literal["auto", "manual"] = "auto"  # manual: only what is forced is held back
    breaker_window: Annotated[Duration, Field(ge=SHORTEST_WINDOW)] = timedelta(seconds=60)
    breaker_min_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    breaker_failure_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    breaker_open_duration: Annotated[Duration, Field(ge=SHORTEST_REST)] = timedelta(seconds=30)
    breaker_half_open_calls: Annotated[int, Field(ge=1, le=1_000)] = 3  # of each dispatcher
    # at the start, for a ticker's word of what is forced, before anything leaves
    breaker_startup_timeout: Duration = timedelta(seconds=10)


class ExecutorSettings(TargetSettings):
    """Slots are attempts running at once, by lane."""

    pool: PoolName = DEFAULT_POOL
    slots_high: Annotated[int, Field(ge=1, le=10_000)] = 60
    slots_normal: Annotated[int, Field(ge=1, le=10_000)] = 40
    slots_low: Annotated[int, Field(ge=1, le=10_000)] = 10
    # of a lane's slots, for the runs of any one target: one that hangs leaves the rest to others
    max_target_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    lease: Duration = timedelta(seconds=15)
    lease_critical: Annotated[Duration, Field(validate_default=True)] = timedelta(seconds=5)
    shutdown_timeout: Duration = timedelta(seconds=25)  # for attempts in flight when stopped

    @field_validator("lease_critical")
    @classmethod
    def _sooner(cls, critical: timedelta, info: ValidationInfo) -> timedelta:
        """Whoever runs critical work learns sooner that its holder is lost."""
        lease = info.data.get("lease")  # None when it is malformed itself, which is told
        if lease is not None and critical >= lease:
            reason = f"must be shorter than {PREFIX}LEASE, {duration_text(lease)}"
            raise invalid("invalid_setting", f"{reason}; got {duration_text(critical)}")
        return critical

    @property
    def slots(self) -> int:
        """Of all lanes."""
        return self.slots_high + self.slots_normal + self.slots_low


class InspectorSettings(ServiceSettings):
    """Of dead letters the oldest go first, whatever became of them."""

    dead_letter_retention: Annotated[Duration, Field(ge=timedelta(days=1))] = timedelta(days=90)
    dead_letter_max_count: Annotated[int, Field(ge=1_000)] = 1_000_000
    # more new dead letters of a tenant than this, within the window, are an alert
    alert_dead_letter_count: Annotated[int, Field(ge=0)] = 10
    alert_window: Interval = timedelta(minutes=15)
    alert_replay_stalled_after: Interval = timedelta(minutes=10)  # so long without a step
    alert_webhook_url: Annotated[SecretStr, AfterValidator(_web)] | None = None
