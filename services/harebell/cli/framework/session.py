"""One use of the command: its options, what surrounds it, and its connection to Harebell."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from harebell.cli.framework.output import Format, Output
from harebell.client import Client
from harebell.client.base import DEFAULT_TENANT
from harebell.client.client import DEFAULT_TIMEOUT
from harebell.contract.errors import InvalidInput

CLIENT_NAME: Final = "harebell-cli"


class Connect(Protocol):
    def __call__(
        self, url: str, *, tenant: str, timeout: float, name: str
    ) -> AbstractAsyncContextManager[Client]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What every command may be told, before or behind its name."""

    amqp_url: str | None = None
    tenant: str = DEFAULT_TENANT
    timeout: float = DEFAULT_TIMEOUT  # seconds
    output: Format = Format.TABLE


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the process gives; `options` are those before the command's name."""

    connect: Connect
    now: Callable[[], datetime]
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class Session:
    options: Options
    surroundings: ProcessContext

    @property
    def output(self) -> Output:
        return Output(self.options.output)

    @property
    def amqp_url(self) -> str:
        """Raises `Malformed` when there is none."""
        if not self.options.amqp_url:
            reason = "no broker is named: set HAREBELL_AMQP_URL or give --amqp-url"
            raise InvalidInput(reason, code="no_amqp_url")
        return self.options.amqp_url

    def harebell(self) -> AbstractAsyncContextManager[Client]:
        return self.surroundings.connect(
            self.amqp_url,
            tenant=self.options.tenant,
            timeout=self.options.timeout,
            name=CLIENT_NAME,
        )
