"""The command line against a fake broker whose responses the test chooses."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from harebell.cli.app import app
from harebell.cli.framework.process import ProcessContext
from harebell.client import BrokerUnavailable, Client

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)


@dataclass(kw_only=True)
class Request:
    """One command or query that the command line sent."""

    exchange: str
    tenant: str
    verb: str
    body: Any


@dataclass(kw_only=True)
class FakeBroker:
    """The transport of a client that records each request and returns the chosen response."""

    respond: Callable[[Request], Any] = lambda _: {"ok": True, "items": []}
    requests: list[Request] = field(default_factory=list)
    connections: list[tuple[str, float]] = field(default_factory=list)
    is_up: bool = True

    async def request(self, exchange: str, verb: str, body: bytes, *, tenant: str) -> bytes:
        request = Request(exchange=exchange, tenant=tenant, verb=verb, body=orjson.loads(body))
        self.requests.append(request)
        return orjson.dumps(self.respond(request))

    @asynccontextmanager
    async def connect(
        self,
        url: str,
        *,
        tenant: str,
        exchange: str | None,
        timeout: float,  # noqa: ASYNC109  # the name in the protocol `Connect`
        name: str,
    ) -> AsyncIterator[Client]:
        assert name == "harebell-cli"
        self.connections.append((url, timeout))
        if not self.is_up:
            raise BrokerUnavailable("The broker refused the connection.")
        yield Client(self, tenant=tenant, exchange=exchange)


@dataclass
class CommandLine:
    """The command line with the fake broker, at a fixed time."""

    broker: FakeBroker

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        """Run a command. The default environment contains the URL of a broker."""
        return CliRunner().invoke(
            app,
            [*arguments],
            input=stdin,
            env={"HAREBELL_AMQP_URL": "amqp://broker.example", **environment},
            obj=ProcessContext(connect=self.broker.connect, now=lambda: NOW),
        )


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def cli(broker: FakeBroker) -> CommandLine:
    return CommandLine(broker)
