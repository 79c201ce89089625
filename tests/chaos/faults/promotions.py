"""Row 16: the primary of PostgreSQL is lost, and its standby is promoted."""

import asyncio
from collections.abc import AsyncIterator

from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault


@fault("16a", "primary killed, synchronous standby promoted", needs_standby=True)
async def synchronous_promotion(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(environment.pair.kill_primary)
    yield
    await asyncio.to_thread(environment.pair.promote)
