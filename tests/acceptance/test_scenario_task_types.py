"""Scenario: reminders by HTTP, AMQP and task, with repeated submits, dead letters and alerts."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance import tasks
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.integration.dlq_inspector.webhook_server import webhook_server
from tests.rig.polling import until
from tests.rig.task_plugins import install

from harebell.client import DeadLetterView
from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

OF_EACH_TYPE: Final = 40  # schedules
SUBMITS: Final = 3  # of each schedule, with one request id
FAILING: Final = 12  # HTTP schedules whose target is broken; more than the alert allows
TYPES: Final = ("http", "amqp", "task")
EXCHANGE: Final = "reminders"
TASK: Final = "test.remind"
RETRY: Final = {"max_attempts": 2, "backoff": {"base": "200ms", "jitter": "none"}}


class Inbox:
    """The consumer of the AMQP reminders: how often each run arrived."""

    def __init__(self) -> None:
        self.arrivals: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()

    async def receive(self, message: AbstractIncomingMessage) -> None:
        self.arrivals[str(message.headers["Harebell-Run-Id"])] += 1
        self.keys[str(message.headers["Idempotency-Key"])] += 1


def schedules(target: Target, record: Path) -> list[dict[str, Any]]:
    """Return the schedules of the three types, all due within some seconds."""
    targets: Mapping[str, Any] = {
        "http": target.http("reminders"),
        "amqp": {"amqp": {"exchange": EXCHANGE, "routing_key": "due", "json": {"kind": "amqp"}}},
        "task": {"task": {"name": TASK, "args": {"file": str(record)}}},
    }
    when = {"at": time_in(10).isoformat()}
    return [
        {
            "key": f"{kind}-{number}",
            "name": "reminder",
            "tags": [kind],
            "when": when,
            "target": targets[kind],
            "retry": RETRY,
            "request_id": f"submit-{kind}-{number}",
        }
        for kind in TYPES
        for number in range(OF_EACH_TYPE)
    ]


async def submit(tenant: Tenant, all_schedules: list[dict[str, Any]]) -> list[Any]:
    """Put the schedules several times at once, and return the responses of each submit."""
    return await asyncio.gather(*(tenant.harebell.put_many(all_schedules) for _ in range(SUBMITS)))


async def open_dead_letters(tenant: Tenant, number: int) -> list[DeadLetterView]:
    async def find() -> list[DeadLetterView] | None:
        found = [each async for each in tenant.harebell.dead_letters()]
        return found if len(found) == number else None

    found = await until(find, what=f"{number} open dead letters")
    assert found is not None
    return found


@pytest.mark.requirement("S15", "S19", "S20", "S26", "S32", "S109", "S112", "S117")
async def test_reminders_of_three_types_arrive_once_and_failures_are_alerted_and_replayed(
    own_stack: Stack, target: Target, tmp_path: Path
) -> None:
    record = tmp_path / "reminders"
    record.touch()
    installed = install(tmp_path, "reminders", {TASK: f"{tasks.__name__}:{tasks.remind.__name__}"})
    inbox = Inbox()
    async with webhook_server() as chat, own_stack.tenant("reminders") as tenant:
        environment = {**installed, "HAREBELL_ALERT_WEBHOOK_URL": chat.url}
        await asyncio.to_thread(own_stack.start, ServiceCounts(executors=2), **environment)
        async with await aio_pika.connect(own_stack.amqp_url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.DIRECT)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, "due")
            await queue.consume(inbox.receive, no_ack=True)

            submits = await submit(tenant, schedules(target, record))
            succeeded = await tenant.until_runs(len(TYPES) * OF_EACH_TYPE, "succeeded")
            broken = target.http("broken", broken="mail-server")
            for number in range(FAILING):
                await tenant.put(f"mail-{number}", {"now": True}, broken, retry=RETRY)
            dead = await open_dead_letters(tenant, FAILING)
            alert = await asyncio.wait_for(chat.posted.get(), timeout=60)
            target.fix("mail-server")
            await tenant.harebell.replay([each.id for each in dead], note="the server is back")
            runs = await tenant.until_runs(len(succeeded) + FAILING, "succeeded")
            shown = [await tenant.harebell.run(str(each.run_id)) for each in dead]

    first, *repeated = [[response.model_dump() for response in each] for each in submits]
    assert all(each == first for each in repeated)
    assert len({response["id"] for response in first}) == len(TYPES) * OF_EACH_TYPE
    by_http = Counter(call.run_id for call in target.calls("reminders"))
    by_task = Counter(record.read_text().split())
    assert [len(calls) for calls in (by_http, inbox.arrivals, by_task)] == 3 * [OF_EACH_TYPE]
    assert {*by_http.values(), *inbox.arrivals.values(), *by_task.values()} == {1}
    assert inbox.keys == inbox.arrivals  # the key of a run is its id, at each attempt
    assert len(runs) == len(succeeded) + FAILING
    assert {each.attempts for each in dead} == {RETRY["max_attempts"]}
    assert "The tenant reminders has " in alert["text"]
    assert {run.state for run in shown} == {"succeeded"}
    assert {len(run.attempts) for run in shown} == {3}  # two failed attempts and the replay
