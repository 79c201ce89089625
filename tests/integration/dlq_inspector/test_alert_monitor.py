"""Dead letter spikes and stalled replay jobs cause events, metrics and posts to a chat."""

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
from tests.fakes.publisher import FakePublisher
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment
from tests.integration.dlq_inspector.test_replay_jobs import ALL, end_runs, start_job, wait_for_job
from tests.integration.dlq_inspector.webhook_server import WebhookServer, webhook_server

from harebell.contract.amqp_names import EVENTS
from harebell.contract.breakers import BreakerEventData, BreakerState
from harebell.contract.events import Event, make_event
from harebell.contract.message import parse
from harebell.dlq_inspector.alert_monitor import AlertMonitor

MAX_COUNT = 3  # new dead letters of a tenant without an alert
ACME, UMBRELLA = "/harebell/acme", "/harebell/umbrella"
MOVE_ALERTS_AN_HOUR_BACK = "UPDATE alerts SET notified_at = now() - interval '61 minutes'"


def with_alerts(environment: DlqEnvironment, **settings: Any) -> DlqEnvironment:
    update: dict[str, Any] = {"alert_dead_letter_count": MAX_COUNT, **settings}
    return replace(environment, settings=environment.settings.model_copy(update=update))


async def bind_queue(environment: DlqEnvironment, *verbs: str) -> AbstractQueue:
    """Declare a queue with the events of these verbs, as any service may do."""
    queue = await environment.channel.declare_queue(exclusive=True)
    for verb in verbs:
        await queue.bind(EVENTS, f"*.{verb}")
    return queue


async def next_event(queue: AbstractQueue) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT):
        while (message := await queue.get(no_ack=True, fail=False)) is None:
            continue
    [event] = orjson.loads(message.body)
    return dict(event)


async def add_new_dead_runs(
    environment: DlqEnvironment, number: int, *, first: int = 0, tenant: str = "acme"
) -> None:
    now = datetime.now(UTC)
    for n in range(first, first + number):
        await environment.add_dead_run(n, tenant=tenant, dead_at=now)


@asynccontextmanager
async def with_webhook(
    environment: DlqEnvironment, statuses: Iterable[int] = ()
) -> AsyncIterator[tuple[DlqEnvironment, WebhookServer]]:
    async with webhook_server(statuses) as server:
        yield with_alerts(environment, alert_webhook_url=SecretStr(server.url)), server


async def next_post(server: WebhookServer) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT):
        return await server.posted.get()


def count(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, labels) or 0


@pytest.mark.requirement("S117")
async def test_spike_causes_an_event_a_count_and_a_post(environment: DlqEnvironment) -> None:
    queue = await bind_queue(environment, "dlq.spike")
    before = count("harebell_alerts_total", alert="dlq.spike")
    async with with_webhook(environment) as (alerted, server), alerted.running_inspector():
        await add_new_dead_runs(environment, MAX_COUNT)
        await environment.wait_for_dead_letters(MAX_COUNT)
        await add_new_dead_runs(environment, 1, first=MAX_COUNT)

        event, post = await next_event(queue), await next_post(server)
        [group] = [each async for each in environment.acme.failure_groups()]

    assert (event["source"], event["data"]["dead_letters"]) == (ACME, MAX_COUNT + 1)
    assert event["data"]["error_code"] == "http_503"
    assert event["data"]["group"] == str(group.id)
    assert post["text"] == event["data"]["text"]
    assert parse(Event, post["event"]) == parse(Event, event)
    assert post["text"].startswith("The tenant acme has 4 new dead letters since ")
    assert count("harebell_alerts_total", alert="dlq.spike") == before + 1


@pytest.mark.requirement("S117")
async def test_spike_has_more_dead_letters_than_the_maximum(environment: DlqEnvironment) -> None:
    publisher = FakePublisher()
    settings = with_alerts(environment).settings
    async with environment.running_inspector(), environment.open_pool() as pool:
        monitor = AlertMonitor(pool=pool, publisher=publisher, settings=settings)
        await add_new_dead_runs(environment, MAX_COUNT)
        await environment.wait_for_dead_letters(MAX_COUNT)
        await monitor.check()
        assert publisher.published == []

        await add_new_dead_runs(environment, 1, first=MAX_COUNT)
        await environment.wait_for_dead_letters(MAX_COUNT + 1)
        await monitor.check()

    assert [message.routing_key for message in publisher.published] == ["acme.dlq.spike"]


@pytest.mark.requirement("S117")
async def test_spike_is_published_once_by_two_processes_and_again_after_an_hour(
    environment: DlqEnvironment,
) -> None:
    queue = await bind_queue(environment, "dlq.spike")
    alerted = with_alerts(environment)
    await add_new_dead_runs(environment, MAX_COUNT + 1)
    async with alerted.running_inspector(), alerted.running_inspector():
        first = await next_event(queue)
        await add_new_dead_runs(environment, MAX_COUNT + 1, tenant="umbrella")
        other = await next_event(queue)  # the same check has included the tenant acme
        await environment.database.execute(MOVE_ALERTS_AN_HOUR_BACK + " WHERE tenant = 'acme'")

        repeated = await next_event(queue)

    assert [each["source"] for each in (first, other, repeated)] == [ACME, UMBRELLA, ACME]
    assert first["id"] != repeated["id"]


@pytest.mark.requirement("S117")
async def test_muted_group_causes_no_alert(environment: DlqEnvironment) -> None:
    queue = await bind_queue(environment, "dlq.spike")
    alerted = with_alerts(environment)
    async with alerted.running_inspector():
        await add_new_dead_runs(environment, 1)
        await environment.wait_for_dead_letters(1)
        await environment.database.execute(
            "UPDATE failure_groups SET state = 'muted', muted_until = now() + interval '1 hour'"
        )
        await add_new_dead_runs(environment, 2 * MAX_COUNT, first=1)
        await environment.wait_for_dead_letters(1 + 2 * MAX_COUNT)
        await add_new_dead_runs(environment, MAX_COUNT + 1, tenant="umbrella")

        event = await next_event(queue)  # one check includes every tenant

    assert event["source"] == UMBRELLA
    assert await queue.get(no_ack=True, fail=False) is None


@pytest.mark.requirement("S117")
async def test_stalled_replay_job_causes_an_event_unless_its_rate_delays_it(
    environment: DlqEnvironment,
) -> None:
    queue = await bind_queue(environment, "replay_job.stalled")
    alerted = with_alerts(environment, alert_dead_letter_count=1_000)
    soon = with_alerts(
        alerted, alert_dead_letter_count=1_000, alert_replay_stalled_after=timedelta(seconds=1)
    )
    async with alerted.running_inspector():
        dead = [await environment.add_dead_run(n) for n in range(4)]
        await environment.wait_for_dead_letters(4)
        job = await start_job(environment, select={"key": "report"})
        await wait_for_job(environment, job, taken=4, replayed=4)
        await end_runs(environment, dead[:1], "succeeded")
        await wait_for_job(environment, job, succeeded=1)
        delayed = await start_delayed_job(environment)

    async with soon.running_inspector():
        event = await next_event(queue)

    assert (event["subject"], event["data"]["unfinished"]) == (str(job), 3)
    assert event["data"]["text"].startswith(
        f"The replay job {job} of the tenant acme is running without progress since "
    )
    assert str(delayed) != event["subject"]
    assert await queue.get(no_ack=True, fail=False) is None


async def start_delayed_job(environment: DlqEnvironment) -> UUID:
    """Start a job whose rate allows the next dead letter after 1,000 seconds."""
    await environment.add_dead_run(10)
    await environment.add_dead_run(11)
    await environment.wait_for_dead_letters(6)
    job = await start_job(environment, "r-2", select=ALL, rate=0.001)
    await wait_for_job(environment, job, taken=1)
    return job


@pytest.mark.requirement("S117")
async def test_webhook_posts_three_times_and_then_counts_a_failure(
    environment: DlqEnvironment,
) -> None:
    failed = count("harebell_alerts_posted_total", result="failed")
    delivered = count("harebell_alerts_posted_total", result="delivered")
    async with (
        with_webhook(environment, [500, 302, 503]) as (alerted, server),
        alerted.running_inspector(),
    ):
        await add_new_dead_runs(environment, MAX_COUNT + 1)
        tries = [await next_post(server) for _ in range(3)]
        await environment.wait_for_dead_letters(
            MAX_COUNT + 1
        )  # the failed posts delay no dead letter
        await environment.database.execute(MOVE_ALERTS_AN_HOUR_BACK)

        later = await next_post(server)

    assert [each["event"]["id"] for each in tries] == [tries[0]["event"]["id"]] * 3
    assert later["event"]["id"] != tries[0]["event"]["id"]
    assert count("harebell_alerts_posted_total", result="failed") == failed + 1
    assert count("harebell_alerts_posted_total", result="delivered") == delivered + 1


@pytest.mark.requirement("S117")
async def test_webhook_posts_a_repeated_alert_of_another_publisher_once(
    environment: DlqEnvironment,
) -> None:
    async with with_webhook(environment) as (alerted, server), alerted.running_inspector():
        for downstream in ("http:a.example", "http:a.example", "http:b.example"):
            await publish_opened_breaker(environment, downstream)

        texts = [(await next_post(server))["text"] for _ in range(2)]

    event = "The event harebell.breaker.opened.v1 of /harebell/harebell reports"
    assert texts == [f"{event} http:a.example.", f"{event} http:b.example."]


async def publish_opened_breaker(environment: DlqEnvironment, downstream: str) -> None:
    verb = "breaker.opened"
    since = datetime.now(UTC)
    data = BreakerEventData(downstream=downstream, state=BreakerState.OPEN, since=since)
    event = make_event("harebell", verb, data, id_=downstream, subject=downstream, at=since)
    await environment.publish(EVENTS, f"harebell.{verb}", orjson.dumps([event]), verb)
