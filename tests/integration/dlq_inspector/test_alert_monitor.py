"""Dead letter spikes and stalled replay jobs cause events, metrics and posts to a chat."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from aio_pika.abc import AbstractQueue
from prometheus_client import REGISTRY
from pydantic import SecretStr
from tests.fakes.publisher import FakePublisher
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment
from tests.integration.dlq_inspector.test_replay_jobs import ALL, end_runs, start_job, wait_for_job
from tests.integration.dlq_inspector.webhook_server import WebhookServer, webhook_server
from tests.rig.polling import until

from harebell.contract.amqp_names import EVENTS
from harebell.contract.breakers import BreakerEventData, BreakerState
from harebell.contract.events import Event, EventJson, make_event
from harebell.contract.message import parse
from harebell.dlq_inspector.alert_monitor import AlertMonitor
from harebell.dlq_inspector.store import alert_posts, dead_letters
from harebell.dlq_inspector.store.alert_posts import MAX_AGE, MAX_PENDING

MAX_COUNT = 3  # new dead letters of a tenant without an alert
ACME, UMBRELLA = "/harebell/acme", "/harebell/umbrella"
OPENED = "breaker.opened"
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
    message = await until(
        lambda: queue.get(no_ack=True, fail=False), within=TIMEOUT, what="an event"
    )
    assert message is not None
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
        monitor = AlertMonitor(pool=pool, publisher=publisher, settings=settings, parked=lambda: 0)
        await add_new_dead_runs(environment, MAX_COUNT)
        await environment.wait_for_dead_letters(MAX_COUNT)
        await monitor.check()
        assert publisher.published == []

        await add_new_dead_runs(environment, 1, first=MAX_COUNT)
        await environment.wait_for_dead_letters(MAX_COUNT + 1)
        await monitor.check()

    assert [message.routing_key for message in publisher.published] == ["acme.dlq.spike"]


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.requirement("S117")
async def test_webhook_repeats_a_failed_post_without_delaying_dead_letters(
    environment: DlqEnvironment,
) -> None:
    delivered = count("harebell_alerts_posted_total", result="delivered")
    async with (
        with_webhook(environment, [500, 302]) as (alerted, server),
        alerted.running_inspector(),
    ):
        await add_new_dead_runs(environment, MAX_COUNT + 1)
        tries = [await next_post(server) for _ in range(3)]
        await environment.wait_for_dead_letters(MAX_COUNT + 1)
        await until_delivered(environment, 1)

    assert [each["event"]["id"] for each in tries] == [tries[0]["event"]["id"]] * 3
    assert count("harebell_alerts_posted_total", result="delivered") == delivered + 1
    assert server.posted.empty()


AWAY = timedelta(minutes=35)
MOVE_POSTS_BACK = "UPDATE alert_posts SET created_at = created_at - $1::interval"
TRY_NOW = "UPDATE alert_posts SET next_try_at = now()"


async def until_tried(environment: DlqEnvironment, tries: int) -> None:
    """Wait until the only alert has failed this number of times."""
    query = """SELECT tries >= $1 FROM alert_posts
               WHERE delivered_at IS NULL AND next_try_at > now()"""
    await until(
        lambda: environment.database.fetchval(query, tries), within=TIMEOUT, what=f"{tries} tries"
    )


async def until_delivered(environment: DlqEnvironment, alerts: int) -> None:
    query = "SELECT count(*) >= $1 FROM alert_posts WHERE delivered_at IS NOT NULL"
    await until(
        lambda: environment.database.fetchval(query, alerts),
        within=TIMEOUT,
        what=f"{alerts} alerts",
    )


async def retried_post(environment: DlqEnvironment, server: WebhookServer) -> dict[str, Any]:
    """Return the next post, without the pause before its try."""
    async with asyncio.timeout(TIMEOUT):
        while server.posted.empty():
            await environment.database.execute(TRY_NOW)
    return server.posted.get_nowait()


@pytest.mark.long
@pytest.mark.requirement("S117")
async def test_chat_receives_its_alert_once_after_half_an_hour_and_a_restart(
    environment: DlqEnvironment,
) -> None:
    """First no server has the address of the chat, and then its server responds with 503.

    The test moves the alert into the past and its next try to now, instead of waiting.
    """
    async with webhook_server() as unused:
        url = SecretStr(unused.url)
    alerted = with_alerts(environment, alert_webhook_url=url)
    async with alerted.running_inspector():
        await add_new_dead_runs(environment, MAX_COUNT + 1)
        await until_tried(environment, 2)  # connections are refused
    await environment.database.execute(MOVE_POSTS_BACK, AWAY / 2)
    async with webhook_server([503, 503], url=url.get_secret_value()) as server:
        async with alerted.running_inspector():
            rejected = [await retried_post(environment, server) for _ in range(2)]
            await environment.database.execute(MOVE_POSTS_BACK, AWAY / 2)

            accepted = await retried_post(environment, server)
            await until_delivered(environment, 1)
        async with alerted.running_inspector():  # a second restart repeats nothing
            await publish_opened_breaker(environment, "http:a.example")
            later = await next_post(server)

    assert {each["event"]["id"] for each in rejected} == {accepted["event"]["id"]}
    assert accepted["text"].startswith("The tenant acme has 4 new dead letters since ")
    assert later["event"]["subject"] == "http:a.example"
    assert server.posted.empty()


@pytest.mark.requirement("S117")
async def test_alert_is_given_up_and_counted_after_a_day(environment: DlqEnvironment) -> None:
    failed = count("harebell_alerts_posted_total", result="failed")
    async with with_webhook(environment) as (alerted, server):
        async with environment.open_pool() as pool:
            for number, age in enumerate((MAX_AGE + timedelta(minutes=1), timedelta(hours=23))):
                await store_alert(pool, f"http:{number}.example")
                await pool.execute(
                    "UPDATE alert_posts SET created_at = now() - $1::interval "
                    "WHERE event->>'subject' = $2",
                    age,
                    f"http:{number}.example",
                )
        async with alerted.running_inspector():
            post = await next_post(server)
            await until_delivered(environment, 1)

    assert post["event"]["subject"] == "http:1.example"
    assert server.posted.empty()
    assert count("harebell_alerts_posted_total", result="failed") == failed + 1


@pytest.mark.requirement("S117")
async def test_oldest_alert_is_dropped_above_the_bound(environment: DlqEnvironment) -> None:
    async with environment.open_pool() as pool:
        first = [await store_alert(pool, f"http:{n}.example") for n in range(MAX_PENDING)]
        dropped = await store_alert(pool, "http:last.example")
        subjects = {
            row["subject"]
            for row in await pool.fetch("SELECT event->>'subject' AS subject FROM alert_posts")
        }

    assert sum(first) == 0
    assert dropped == 1
    assert len(subjects) == MAX_PENDING
    assert "http:0.example" not in subjects
    assert "http:last.example" in subjects


async def store_alert(pool: asyncpg.Pool, downstream: str) -> int:
    event = parse(Event, opened_breaker(downstream))
    return await alert_posts.store(pool, event, is_unique=False, repeat_after=timedelta(hours=1))


@pytest.mark.requirement("S116")
async def test_gauge_of_open_dead_letters_falls_after_replays_and_discards(
    environment: DlqEnvironment,
) -> None:
    async with environment.running_inspector():
        dead = [await environment.add_dead_run(n) for n in range(12)]
        letters = await environment.wait_for_dead_letters(12)
        await environment.send_command("dlq.discard", letters[0].id)
        await environment.next_results()
        await environment.send_command("dlq.replay", letters[1].id)
        await environment.next_results()

    async with environment.open_pool() as pool:
        assert len(dead) == 12
        assert await dead_letters.count_open(pool) == 10


@pytest.mark.requirement("S117")
async def test_webhook_posts_a_repeated_alert_of_another_publisher_once(
    environment: DlqEnvironment,
) -> None:
    async with with_webhook(environment) as (alerted, server), alerted.running_inspector():
        for downstream in ("a.example:443", "a.example:443", "b.example:443"):
            await publish_opened_breaker(environment, downstream)

        texts = [(await next_post(server))["text"] for _ in range(2)]

    event = "The event harebell.breaker.opened.v1 of /harebell/harebell reports"
    assert texts == [f"{event} a.example:443.", f"{event} b.example:443."]


@pytest.mark.requirement("S113", "S117")
async def test_webhook_posts_the_sentences_of_an_opened_breaker(
    environment: DlqEnvironment,
) -> None:
    text = (
        "The circuit breaker of a.example:443 opened at 09:00:05 UTC: the last 5 attempts failed."
    )
    async with with_webhook(environment) as (alerted, server), alerted.running_inspector():
        await publish_opened_breaker(environment, "a.example:443", text)

        post = await next_post(server)

    assert post["text"] == text


def opened_breaker(downstream: str, text: str | None = None) -> EventJson:
    since = datetime.now(UTC)
    data = BreakerEventData(downstream=downstream, state=BreakerState.OPEN, since=since, text=text)
    id_ = f"{downstream}/{since.isoformat()}"
    return make_event("harebell", OPENED, data, id_=id_, subject=downstream, at=since)


async def publish_opened_breaker(
    environment: DlqEnvironment, downstream: str, text: str | None = None
) -> None:
    body = orjson.dumps([opened_breaker(downstream, text)])
    await environment.publish(EVENTS, f"harebell.{OPENED}", body, OPENED)


async def test_parked_dead_letters_cause_one_alert_for_the_operators(
    environment: DlqEnvironment,
) -> None:
    publisher = FakePublisher()
    async with environment.open_pool() as pool:
        monitor = AlertMonitor(
            pool=pool, publisher=publisher, settings=environment.settings, parked=lambda: 3
        )
        await monitor.check()
        await monitor.check()

    [alert] = publisher.published
    [event] = orjson.loads(alert.body)
    data = event["data"]
    assert alert.routing_key == "harebell.dlq.parked"
    assert data["parked"] == 3
    assert data["text"].startswith("The queue harebell.parked has 3 dead letters")
