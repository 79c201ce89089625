"""What grows or stands still at the desk is told on the bus, and posted to a chat."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from aio_pika.abc import AbstractQueue
from prometheus_client import REGISTRY
from pydantic import SecretStr
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment
from tests.integration.dlq_inspector.test_replay_jobs import ALL, end, start, until
from tests.integration.dlq_inspector.webhook_server import Chat, chat

from harebell.contract.amqp_names import EVENTS
from harebell.contract.breakers import BreakerEventData, BreakerState
from harebell.contract.events import Event, make_event
from harebell.contract.message import parse

MANY = 3  # new dead letters of a tenant that are no alert
ACME, UMBRELLA = "/harebell/acme", "/harebell/umbrella"
HOUR_AGO = "UPDATE alerts SET notified_at = now() - interval '61 minutes'"


def told_of(environment: DlqEnvironment, **settings: Any) -> DlqEnvironment:
    wanted: dict[str, Any] = {"alert_dead_letters": MANY, **settings}
    return replace(environment, settings=environment.settings.model_copy(update=wanted))


async def ears(environment: DlqEnvironment, *verbs: str) -> AbstractQueue:
    """A queue of any service's own, bound to what it wants to hear of."""
    queue = await environment.channel.declare_queue(exclusive=True)
    for verb in verbs:
        await queue.bind(EVENTS, f"*.{verb}")
    return queue


async def heard(queue: AbstractQueue) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT):
        while (message := await queue.get(no_ack=True, fail=False)) is None:
            continue
    [event] = orjson.loads(message.body)
    return dict(event)


async def die_now(environment: DlqEnvironment, number: int, *, first: int = 0, tenant: str = "acme") -> None:
    now = datetime.now(UTC)
    for n in range(first, first + number):
        await environment.add_dead_run(n, tenant=tenant, dead_at=now)


@asynccontextmanager
async def posting(
    environment: DlqEnvironment, statuses: Iterable[int] = ()
) -> AsyncIterator[tuple[DlqEnvironment, Chat]]:
    async with chat(statuses) as opened:
        yield told_of(environment, alert_webhook_url=SecretStr(opened.url)), opened


async def posted(opened: Chat) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT):
        return await opened.posted.get()


def count(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, labels) or 0


@pytest.mark.requirement("S117")
async def test_dead_letters_that_grow_are_an_event_a_count_and_a_line_in_the_chat(
    environment: DlqEnvironment,
) -> None:
    queue = await ears(environment, "dlq.spike")
    before = count("harebell_alerts_total", alert="dlq.spike")
    async with posting(environment) as (alerted, opened), alerted.running_inspector():
        await die_now(environment, MANY)
        await environment.wait_for_dead_letters(MANY)
        await die_now(environment, 1, first=MANY)

        event, line = await heard(queue), await posted(opened)
        [group] = [each async for each in environment.acme.failure_groups()]

    assert (event["source"], event["data"]["letters"]) == (ACME, MANY + 1)
    assert event["data"]["error_code"] == "http_503"
    assert event["data"]["group"] == group["id"]
    assert line["text"] == event["data"]["text"]
    assert parse(Event, line["event"]) == parse(Event, event)
    assert line["text"].startswith("acme: 4 new dead letters since ")
    assert count("harebell_alerts_total", alert="dlq.spike") == before + 1


@pytest.mark.requirement("S117")
async def test_it_is_told_once_by_however_many_and_again_after_an_hour(environment: DlqEnvironment) -> None:
    queue = await ears(environment, "dlq.spike")
    alerted = told_of(environment)
    await die_now(environment, MANY + 1)
    async with alerted.running_inspector(), alerted.running_inspector():
        first = await heard(queue)
        await die_now(environment, MANY + 1, tenant="umbrella")
        others = await heard(queue)  # whoever looked for it looked at acme's too
        await environment.database.execute(HOUR_AGO + " WHERE tenant = 'acme'")

        again = await heard(queue)

    assert [each["source"] for each in (first, others, again)] == [ACME, UMBRELLA, ACME]
    assert first["id"] != again["id"]


@pytest.mark.requirement("S117")
async def test_a_group_that_is_muted_alarms_nobody(environment: DlqEnvironment) -> None:
    queue = await ears(environment, "dlq.spike")
    alerted = told_of(environment)
    async with alerted.running_inspector():
        await die_now(environment, 1)
        await environment.wait_for_dead_letters(1)
        await environment.database.execute(
            "UPDATE failure_groups SET state = 'muted', muted_until = now() + interval '1 hour'"
        )
        await die_now(environment, 2 * MANY, first=1)
        await environment.wait_for_dead_letters(1 + 2 * MANY)
        await die_now(environment, MANY + 1, tenant="umbrella")

        event = await heard(queue)  # a look sees all tenants

    assert event["source"] == UMBRELLA
    assert await queue.get(no_ack=True, fail=False) is None


@pytest.mark.requirement("S117")
async def test_a_replay_that_does_not_move_is_told_and_one_that_is_paced_is_not(
    environment: DlqEnvironment,
) -> None:
    queue = await ears(environment, "replay_job.stalled")
    alerted = told_of(environment, alert_dead_letters=1_000)
    soon = told_of(alerted, alert_dead_letters=1_000, alert_replay_stalled=timedelta(seconds=1))
    async with alerted.running_inspector():
        dead = [await environment.add_dead_run(n) for n in range(4)]
        await environment.wait_for_dead_letters(4)
        job = await start(environment, select={"key": "report"})
        await until(environment, job, taken=4, replayed=4)
        await end(environment, dead[:1], "succeeded")
        await until(environment, job, succeeded=1)
        another = await paced(environment)

    async with soon.running_inspector():
        event = await heard(queue)

    assert (event["subject"], event["data"]["undecided"]) == (str(job), 3)
    assert event["data"]["text"].startswith(
        f"acme: replay {job} is running and has not moved since"
    )
    assert str(another) != event["subject"]
    assert await queue.get(no_ack=True, fail=False) is None


async def paced(environment: DlqEnvironment) -> UUID:
    """A replay whose rate lets it take the next only in a quarter of an hour."""
    await environment.add_dead_run(10)
    await environment.add_dead_run(11)
    await environment.wait_for_dead_letters(6)
    job = await start(environment, "r-2", select=ALL, rate=0.001)
    await until(environment, job, taken=1)
    return job


@pytest.mark.requirement("S117")
async def test_a_chat_that_refuses_is_asked_again_and_then_given_up(environment: DlqEnvironment) -> None:
    given_up = count("harebell_alerts_posted_total", result="given_up")
    arrived = count("harebell_alerts_posted_total", result="arrived")
    async with posting(environment, [500, 302, 503]) as (alerted, opened), alerted.running_inspector():
        await die_now(environment, MANY + 1)
        tries = [await posted(opened) for _ in range(3)]
        await environment.wait_for_dead_letters(MANY + 1)  # the desk has worked on meanwhile
        await environment.database.execute(HOUR_AGO)

        later = await posted(opened)

    assert [each["event"]["id"] for each in tries] == [tries[0]["event"]["id"]] * 3
    assert later["event"]["id"] != tries[0]["event"]["id"]
    assert count("harebell_alerts_posted_total", result="given_up") == given_up + 1
    assert count("harebell_alerts_posted_total", result="arrived") == arrived + 1


@pytest.mark.requirement("S117")
async def test_what_others_tell_again_and_again_is_posted_once_an_hour(environment: DlqEnvironment) -> None:
    async with posting(environment) as (alerted, opened), alerted.running_inspector():
        for downstream in ("http:a.example", "http:a.example", "http:b.example"):
            await breaker_opens(environment, downstream)

        lines = [(await posted(opened))["text"] for _ in range(2)]

    told = "/harebell/harebell: harebell.breaker.opened.v1 http:"
    assert lines == [f"{told}a.example", f"{told}b.example"]


async def breaker_opens(environment: DlqEnvironment, downstream: str) -> None:
    verb = "breaker.opened"
    since = datetime.now(UTC)
    fact = BreakerEventData(downstream=downstream, state=BreakerState.OPEN, since=since)
    told = make_event("harebell", verb, fact, id_=downstream, subject=downstream, at=since)
    await environment.publish(EVENTS, f"harebell.{verb}", orjson.dumps([told]), verb)
