"""A transport that records each request and returns the response of the test."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest


@dataclass
class FakeTransport:
    """A transport without a broker. `respond` returns the response to a body."""

    respond: Callable[[Any], Any] = lambda _: {"ok": True, "items": []}
    requests: list[tuple[str, Any]] = field(default_factory=list)

    async def request(self, exchange: str, verb: str, body: bytes, *, tenant: str) -> bytes:
        content = orjson.loads(body)
        self.requests.append((f"{exchange} {tenant}.{verb}", content))
        return orjson.dumps(self.respond(content))


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()
