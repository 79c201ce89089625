"""The plan of the stack: the services to run and their settings, as pure values."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from harebell.domain.sender import default_mode

STOP_TIMEOUT: Final = 10.0  # seconds after SIGTERM until a service without attempts is killed


class ServiceKind(StrEnum):
    """The five services, by the name of their package."""

    INTAKE = "intake"
    TICKER = "ticker"
    DISPATCHER = "dispatcher"
    EXECUTOR = "executor"
    DLQ_INSPECTOR = "dlq_inspector"


Command = Callable[[ServiceKind], tuple[str, ...]]

# Local targets and example tasks are allowed, logs are JSON, and services declare the topology.
# The environment of the caller may contain other values.
DEFAULTS = {
    "HAREBELL_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128",
    "HAREBELL_EXAMPLE_TASKS": "true",
    "HAREBELL_LOG_FORMAT": "json",
    "HAREBELL_TOPOLOGY_MODE": "declare",
}

# The settings, the certificates of TLS, the search paths of programs and of Python, the locale,
# the time zone and the folder of temporary files.
KEPT_PREFIXES: Final = ("HAREBELL_", "SSL_", "PYTHON", "LC_")
KEPT_VARIABLES: Final = frozenset({"PATH", "LANG", "TZ", "TMPDIR"})


@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """The number of processes of each service. Intake and dlq_inspector have one each."""

    tickers: int = 1
    dispatchers: int = 1
    executors: int = 1

    def members(self) -> list[tuple[ServiceKind, int]]:
        counts = {
            ServiceKind.INTAKE: 1,
            ServiceKind.TICKER: self.tickers,
            ServiceKind.DISPATCHER: self.dispatchers,
            ServiceKind.EXECUTOR: self.executors,
            ServiceKind.DLQ_INSPECTOR: 1,
        }
        return [(kind, number) for kind, count in counts.items() for number in range(1, count + 1)]


class PlannedService(BaseModel):
    """One service process with its command and environment."""

    model_config = ConfigDict(frozen=True)

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    port: int
    stop_timeout: float = STOP_TIMEOUT  # seconds after SIGTERM until the process is killed


class StackPlan(BaseModel):
    """The plan of the last start of the stack."""

    model_config = ConfigDict(frozen=True)

    amqp_url: str
    database_url: str
    management_url: str | None
    restart: bool
    services: tuple[PlannedService, ...]

    @property
    def identity(self) -> str:
        """The proof of the tenant that the services require."""
        variables = self.services[0].environment if self.services else {}
        default = default_mode(variables.get("HAREBELL_TOPOLOGY_MODE", ""))
        return variables.get("HAREBELL_IDENTITY", default)


def module_command(kind: ServiceKind) -> tuple[str, ...]:
    return (sys.executable, "-m", f"harebell.{kind}")


def name_of(kind: ServiceKind, number: int) -> str:
    return f"{kind}-{number}"


def service_environment(
    kind: ServiceKind,
    number: int,
    *,
    port: int,
    amqp_url: str,
    database_url: str,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of a service.

    The kept variables of the caller replace the defaults, and the addresses replace both.
    """
    known = {
        "HAREBELL_AMQP_URL": amqp_url,
        "HAREBELL_DATABASE_URL": role_url(database_url, kind),
        "HAREBELL_HTTP_PORT": str(port),
        "HAREBELL_INSTANCE_ID": name_of(kind, number),
    }
    return DEFAULTS | kept_environment(environ) | known


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a service needs. `plan.json` contains no other variable.

    The shell of a developer often contains tokens of other systems.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }


def role_url(database_url: str, kind: ServiceKind) -> str:
    """Return the database URL with the role of a service and the password of the owner."""
    parts = urlsplit(database_url)
    login, _, address = parts.netloc.rpartition("@")
    _, colon, password = login.partition(":")
    return parts._replace(netloc=f"harebell_{kind}{colon}{password}@{address}").geturl()
