"""The client over a courier that answers as the test says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest


@dataclass
class FakeCourier:
    answer: Callable[[Any], Any] = lambda _: {"ok": True, "items": []}
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def request(self, exchange: str, tenant: str, verb: str, body: bytes) -> bytes:
        question = orjson.loads(body)
        self.asked.append((f"{exchange} {tenant}.{verb}", question))
        return orjson.dumps(self.answer(question))


@pytest.fixture
def courier() -> FakeCourier:
    return FakeCourier()
