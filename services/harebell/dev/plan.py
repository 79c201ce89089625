"""What is to run and with which settings: pure values, written down for the supervisor."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict


class ServiceKind(StrEnum):
    """The five services, by the name of their package."""

    INTAKE = "intake"
    TICKER = "ticker"
    DISPATCHER = "dispatcher"
    EXECUTOR = "executor"
    DLQ_INSPECTOR = "dlq_inspector"


Command = Callable[[ServiceKind], tuple[str, ...]]

# What a developer wants unless they say otherwise: targets of their own, logs a program can read.
DEFAULTS = {
    "HAREBELL_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128",
    "HAREBELL_LOG_FORMAT": "json",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each; there is one intake and one dlq_inspector."""

    tickers: int = 1
    dispatchers: int = 1
    executors: int = 1

    def members(self) -> list[tuple[ServiceKind, int]]:
        many = {
            ServiceKind.INTAKE: 1,
            ServiceKind.TICKER: self.tickers,
            ServiceKind.DISPATCHER: self.dispatchers,
            ServiceKind.EXECUTOR: self.executors,
            ServiceKind.DLQ_INSPECTOR: 1,
        }
        return [(kind, number) for kind, count in many.items() for number in range(1, count + 1)]


class PlannedService(BaseModel):
    """One service process, ready to be started."""

    model_config = ConfigDict(frozen=True)

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    port: int


class StackPlan(BaseModel):
    """The whole stack as it was last started."""

    model_config = ConfigDict(frozen=True)

    amqp_url: str
    database_url: str
    management_url: str | None
    restart: bool
    services: tuple[PlannedService, ...]


def module_command(kind: ServiceKind) -> tuple[str, ...]:
    return (sys.executable, "-m", f"harebell.{kind}")


def name_of(kind: ServiceKind, number: int) -> str:
    return f"{kind}-{number}"


def environment_for(
    kind: ServiceKind,
    number: int,
    *,
    port: int,
    amqp_url: str,
    database_url: str,
    caller: Mapping[str, str],
) -> dict[str, str]:
    """The caller's environment, our defaults under it and what only we can know over it."""
    known = {
        "HAREBELL_AMQP_URL": amqp_url,
        "HAREBELL_DATABASE_URL": role_url(database_url, kind),
        "HAREBELL_HTTP_PORT": str(port),
        "HAREBELL_INSTANCE_ID": name_of(kind, number),
    }
    return DEFAULTS | dict(caller) | known


def role_url(database_url: str, kind: ServiceKind) -> str:
    """The same database as the service's own role; the roles share the owner's password."""
    parts = urlsplit(database_url)
    login, _, address = parts.netloc.rpartition("@")
    _, colon, password = login.partition(":")
    return parts._replace(netloc=f"harebell_{kind}{colon}{password}@{address}").geturl()
