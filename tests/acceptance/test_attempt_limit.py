"""The maximum of attempts under kills of executors and repeated tickets."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from tests.acceptance.faults import SHORT_LEASES, Pool, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import WAIT_TIMEOUT

from harebell.contract.amqp_names import WORK

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

RUNS = 40
MAX_ATTEMPTS = 3
RETRY = {
    "max_attempts": MAX_ATTEMPTS,
    "backoff": {"base": "500ms", "factor": 1, "jitter": "none"},
}
FIRST_DUE, LOAD_DURATION = 1.0, 4.0  # seconds
CALL_DURATION = 0.5  # seconds, so that each kill interrupts calls
SETTLE_TIME = 3.0  # seconds in which a repeated ticket would start an attempt


class TicketCopies:
    """A copy of each work message of a pool, which can be published again."""

    def __init__(self, channel: AbstractChannel, pool: str) -> None:
        self._channel = channel
        self._pool = pool
        self._bodies: list[tuple[str, bytes, str | None]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, stack: Stack, pool: str) -> AsyncIterator["TicketCopies"]:
        async with await aio_pika.connect(stack.amqp_url) as connection:
            channel = await connection.channel()
            copies = cls(channel, pool)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(WORK, f"{pool}.*")
            await queue.consume(copies._collect, no_ack=True)
            yield copies

    async def _collect(self, message: AbstractIncomingMessage) -> None:
        self._bodies.append((message.routing_key or "", message.body, message.type))

    async def publish_again(self) -> int:
        """Publish each message that has arrived so far once more, and return their number."""
        exchange = await self._channel.get_exchange(WORK, ensure=False)
        bodies = list(self._bodies)
        for key, body, type_ in bodies:
            await exchange.publish(aio_pika.Message(body, type=type_), key)
        return len(bodies)


@pytest.mark.requirement("S106")
async def test_no_run_has_more_attempts_than_its_maximum_when_executors_die_and_tickets_repeat(
    faulty_stack: Stack,
    faulty_tenant: Tenant,
    pool: Pool,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    for number in (1, 2):
        await pool.start(number, **SHORT_LEASES)
    hook = target.http("failing", fail=10 * MAX_ATTEMPTS, sleep=CALL_DURATION)
    async with TicketCopies.open(faulty_stack, pool.name) as copies:
        await put_spread(
            faulty_tenant,
            hook,
            RUNS,
            first=FIRST_DUE,
            over=LOAD_DURATION,
            pool=pool.name,
            retry=RETRY,
        )
        for kill in (1, 2):
            await until_called(target, "failing", kill * RUNS)
            faulty_stack.kill(pool.members[kill].name)
            await copies.publish_again()
            await pool.start(kill, **SHORT_LEASES)
        dead = await faulty_tenant.until_runs(RUNS, "dead", within=2 * WAIT_TIMEOUT)
        repeated = await copies.publish_again()
        await asyncio.sleep(SETTLE_TIME)

    attempts = await faulty_tenant.ledger.fetch(
        "SELECT schedule_id, array_agg(number ORDER BY number) AS numbers, "
        "array_agg(outcome) AS outcomes FROM attempts "
        "WHERE schedule_id = ANY($1) GROUP BY 1",
        [run["schedule_id"] for run in dead],
    )
    calls = target.calls("failing")
    outcomes = Counter(outcome for row in attempts for outcome in row["outcomes"])
    record_property("attempts", f"{outcomes}; {repeated} repeated messages")
    assert await faulty_tenant.runs() == dead
    assert Counter(run["attempt"] for run in dead) == {MAX_ATTEMPTS: RUNS}
    assert len(attempts) == RUNS
    assert {tuple(row["numbers"]) for row in attempts} == {tuple(range(1, MAX_ATTEMPTS + 1))}
    assert max(Counter(call.run_id for call in calls).values()) <= MAX_ATTEMPTS
    assert max(call.attempt for call in calls) == MAX_ATTEMPTS
    assert outcomes["lease_expired"] > 0, "No kill interrupted a call."
    assert repeated > 0
