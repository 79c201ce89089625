"""The command line against a Harebell that answers as the test says."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from harebell.cli.app import app
from harebell.cli.framework.session import ProcessContext
from harebell.client import BrokerUnavailable, Client

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)


@dataclass
class Asked:
    exchange: str
    tenant: str
    verb: str
    body: Any


@dataclass
class FakeHarebell:
    """Takes the place of the broker and all behind it: bodies in, bodies out."""

    answer: Callable[[Asked], Any] = lambda _: {"ok": True, "items": []}
    asked: list[Asked] = field(default_factory=list)
    connected_to: list[tuple[str, float]] = field(default_factory=list)
    is_up: bool = True

    async def request(self, exchange: str, tenant: str, verb: str, body: bytes) -> bytes:
        self.asked.append(Asked(exchange, tenant, verb, orjson.loads(body)))
        return orjson.dumps(self.answer(self.asked[-1]))

    @asynccontextmanager
    async def connect(
        self,
        url: str,
        *,
        tenant: str,
        timeout: float,  # noqa: ASYNC109  # the link's name for it
        name: str,
    ) -> AsyncIterator[Client]:
        assert name == "harebell-cli"
        self.connected_to.append((url, timeout))
        if not self.is_up:
            raise BrokerUnavailable("cannot connect: refused")
        yield Client(self, tenant=tenant)


@dataclass
class CommandLine:
    harebell: FakeHarebell

    def __call__(self, *words: str, stdin: str = "", **environment: str) -> Result:
        """`HAREBELL_AMQP_URL` is set unless it is given as empty."""
        return CliRunner().invoke(
            app,
            [*words],
            input=stdin,
            env={"HAREBELL_AMQP_URL": "amqp://broker.example", **environment},
            obj=ProcessContext(connect=self.harebell.connect, now=lambda: NOW),
        )


@pytest.fixture
def harebell() -> FakeHarebell:
    return FakeHarebell()


@pytest.fixture
def cli(harebell: FakeHarebell) -> CommandLine:
    return CommandLine(harebell)
