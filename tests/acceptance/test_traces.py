"""Traces across all services: the spans that a collector receives, and the log of each run."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import aio_pika
import orjson
import pytest
from tests.acceptance import tasks
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.span_collector import CollectedSpan, SpanCollector, open_collector
from tests.acceptance.stack import Stack, Tenant
from tests.acceptance.stack import run_id as run_id_of
from tests.rig.polling import until
from tests.rig.servers import Servers
from tests.rig.task_plugins import install

from harebell.client import trace_context
from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"  # of the publisher
PUBLISHER: Final = "b7ad6b7169203331"
TRACEPARENT: Final = f"00-{TRACE}-{PUBLISHER}-01"
REPLAYER: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MAX_WAIT: Final = 3.0  # seconds from a command to a run in its trace
EXCHANGE: Final = "traced"
TASK: Final = "test.trace"
NOW: Final = {"now": True}
QUICK: Final = {"backoff": {"base": "200ms", "jitter": "none"}}


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with open_collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def traced_stack(
    servers: Servers, collector: SpanCollector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("tasks")
    plugins = install(folder, "trace", {TASK: f"{tasks.__name__}:{tasks.current_trace.__name__}"})
    with Stack.open(servers, tmp_path_factory.mktemp("traced")) as stack:
        stack.start(
            ServiceCounts(),
            **collector.environment,
            **plugins,
            HAREBELL_RUN_LOG="all",
            HAREBELL_TRACE_MAX_WAIT=f"{MAX_WAIT:g}s",
        )
        yield stack


@pytest.fixture
async def traced(traced_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    async with traced_stack.tenant(name_of_test) as opened:
        yield opened


def http(collector: SpanCollector, tenant: Tenant, path: str = "ok") -> dict[str, Any]:
    url = f"{collector.url}/{tenant.name}/{path}"
    return {"http": {"url": url, "method": "POST", "json": {"secret": "in-the-body"}}}


async def attempts_of(collector: SpanCollector, run_id: str, count: int = 1) -> list[CollectedSpan]:
    async def find() -> list[CollectedSpan] | None:
        found = collector.of_run(run_id)
        return found if len(found) >= count else None

    found = await until(find, what=f"{count} spans of {run_id}")
    assert found is not None
    return found


async def command_span(collector: SpanCollector, tenant: Tenant, name: str) -> CollectedSpan:
    async def find() -> CollectedSpan | None:
        spans = [each for each in collector.spans if each.name == name]
        of_tenant = (each for each in spans if each.attributes["harebell.tenant"] == tenant.name)
        return next(of_tenant, None)

    found = await until(find, what=name)
    assert found is not None
    return found


async def children_of(collector: SpanCollector, parent: CollectedSpan, count: int) -> set[str]:
    """Return the names of the children of a span, which several services export."""

    async def find() -> set[str] | None:
        names = {each.name for each in collector.children(parent.span_id)}
        return names if len(names) >= count else None

    found = await until(find, what=f"{count} children of {parent.name}")
    assert found is not None
    return found


async def one_run(tenant: Tenant, state: str = "succeeded") -> str:
    [run] = await tenant.until_runs(1, state)
    return run_id_of(str(run["schedule_id"]), run["scheduled_for"])


def lines_of(stack: Stack, run_id: str) -> list[dict[str, Any]]:
    """Return the log lines of the transitions of a run, of all services."""
    names = [f"{kind.value}-1" for kind in ServiceKind]
    text = "".join(stack.log_of(name) for name in names)
    lines = [json.loads(line) for line in text.splitlines() if '"run changed"' in line]
    return sorted(
        (line for line in lines if line["run"] == run_id), key=lambda line: str(line["timestamp"])
    )


@pytest.mark.requirement("S120")
async def test_immediate_run_of_an_http_target_is_in_the_trace_of_its_publisher(
    traced: Tenant, collector: SpanCollector
) -> None:
    with trace_context(TRACEPARENT, "vendor=value"):
        await traced.put("hook", NOW, http(collector, traced))
    run_id = await one_run(traced)

    [attempt] = await attempts_of(collector, run_id)
    command = await command_span(collector, traced, "create schedule")

    async def request_span() -> CollectedSpan | None:
        return next(iter(collector.children(attempt.span_id)), None)

    request = await until(request_span)
    assert request is not None
    assert (command.trace_id, command.parent_id) == (TRACE, PUBLISHER)
    assert (command.service, attempt.service) == ("harebell-intake", "harebell-executor")
    assert (attempt.trace_id, attempt.parent_id, attempt.links) == (TRACE, command.span_id, [])
    [call] = collector.calls[f"/{traced.name}/ok"]
    assert call["traceparent"] == f"00-{TRACE}-{request.span_id}-01"
    assert call["tracestate"] == "vendor=value"
    assert request.attributes["http.response.status_code"] == 200
    assert await children_of(collector, command, 2) == {"stage", "process run"}
    assert not any("secret" in str(each.attributes) for each in collector.spans)


@pytest.mark.requirement("S120")
async def test_each_transition_of_a_run_is_one_log_line_with_its_ids(
    traced: Tenant, collector: SpanCollector
) -> None:
    with trace_context(TRACEPARENT):
        await traced.put("logged", NOW, http(collector, traced, "fail-1"), retry=QUICK)
    run_id = await one_run(traced)
    [first, second] = await attempts_of(collector, run_id, 2)

    async def all_lines() -> list[dict[str, Any]] | None:
        lines = lines_of(traced.stack, run_id)
        has_all = {"retrying", "succeeded"} <= {line["state"] for line in lines}
        # A line is written after its commit, when the next attempt may have started already.
        return sorted(lines, key=lambda line: int(line["attempt"])) if has_all else None

    lines = await until(all_lines)

    assert lines is not None
    assert [(line["state"], line["attempt"]) for line in lines] == [
        ("staged", 0),
        ("running", 1),
        ("retrying", 1),
        ("running", 2),
        ("succeeded", 2),
    ]
    assert {(line["tenant"], line["key"]) for line in lines} == {(traced.name, "logged")}
    assert [line.get("span_id") for line in lines] == [
        None,
        first.span_id,
        first.span_id,
        second.span_id,
        second.span_id,
    ]
    assert [line["trace_id"] for line in lines[:3]] == [TRACE] * 3
    assert lines[2]["error"] == "http_503"


@pytest.mark.requirement("S120")
async def test_retry_is_a_new_trace_with_links_to_the_command_and_the_previous_attempt(
    traced: Tenant, collector: SpanCollector
) -> None:
    with trace_context(TRACEPARENT):
        await traced.put("retried", NOW, http(collector, traced, "fail-1"), retry=QUICK)
    run_id = await one_run(traced)

    [first, second] = await attempts_of(collector, run_id, 2)
    command = await command_span(collector, traced, "create schedule")

    assert (first.trace_id, first.is_error) == (TRACE, True)
    assert first.attributes["error.type"] == "http_503"
    assert second.trace_id != TRACE
    assert second.parent_id == ""
    assert second.links == [(TRACE, command.span_id), (TRACE, first.span_id)]


async def test_replay_links_to_its_command_and_to_the_last_attempt(
    traced: Tenant, collector: SpanCollector
) -> None:
    once = {"max_attempts": 1}
    with trace_context(TRACEPARENT):
        await traced.put("replayed", NOW, http(collector, traced, "fail-1"), retry=once)
    run_id = await one_run(traced, "dead")

    async def find() -> list[Any]:
        return [each async for each in traced.harebell.dead_letters()]

    [dead_letter] = await until(find)
    with trace_context(REPLAYER):
        await traced.harebell.replay([dead_letter.id])
    [dead, replayed] = await attempts_of(collector, run_id, 2)
    command = await command_span(collector, traced, "dlq.replay")

    assert command.parent_id == REPLAYER.split("-")[2]
    assert (replayed.parent_id, replayed.attributes["harebell.run.replay_number"]) == ("", 1)
    assert replayed.links == [
        (command.trace_id, command.span_id),
        (dead.trace_id, dead.span_id),
    ]


async def test_run_after_a_long_wait_is_a_new_trace_with_a_link(
    traced: Tenant, collector: SpanCollector
) -> None:
    with trace_context(TRACEPARENT):
        await traced.put("later", {"after": f"{MAX_WAIT + 1:g}s"}, http(collector, traced))
    run_id = await one_run(traced)

    [attempt] = await attempts_of(collector, run_id)
    command = await command_span(collector, traced, "create schedule")

    assert attempt.trace_id != TRACE
    assert (attempt.parent_id, attempt.links) == ("", [(TRACE, command.span_id)])


async def test_trace_reaches_the_message_of_an_amqp_target(
    traced: Tenant, collector: SpanCollector
) -> None:
    connection = await aio_pika.connect(traced.stack.amqp_url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, durable=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "due")
        with trace_context(TRACEPARENT):
            await traced.put("sent", NOW, {"amqp": {"exchange": EXCHANGE, "routing_key": "due"}})
        run_id = await one_run(traced)
        message = await queue.get(timeout=5)
    [attempt] = await attempts_of(collector, run_id)

    async def send_span() -> CollectedSpan | None:
        return next(iter(collector.children(attempt.span_id)), None)

    sent = await until(send_span)

    assert sent is not None
    assert (sent.name, sent.attributes["messaging.destination.name"]) == ("send traced", EXCHANGE)
    assert message.headers["traceparent"] == f"00-{TRACE}-{sent.span_id}-01"


async def test_trace_reaches_the_context_of_a_task_and_its_current_span(
    traced: Tenant, collector: SpanCollector
) -> None:
    with trace_context(TRACEPARENT):
        await traced.put("called", NOW, {"task": {"name": TASK}})
    run_id = await one_run(traced)

    [attempt] = await attempts_of(collector, run_id)
    [record] = await traced.attempts(run_id)

    assert orjson.loads(record["result"]) == {
        "traceparent": f"00-{TRACE}-{attempt.span_id}-01",
        "current_span": attempt.span_id,
    }
    assert record["trace"] == f"00-{TRACE}-{attempt.span_id}-01"


@pytest.mark.parametrize(
    ("header", "trace"),
    [(TRACEPARENT, TRACE), (f"00-{TRACE}-{'0' * 16}-01", None), ("x" * 100_000, None), (7, None)],
)
async def test_foreign_client_needs_only_the_header_and_an_invalid_one_is_ignored(
    traced: Tenant, collector: SpanCollector, header: Any, trace: str | None
) -> None:
    schedule = {"key": "foreign", "when": NOW, "target": http(collector, traced)}
    async with AmqpClient.open(traced.stack.amqp_url, traced.name) as client:
        response = await client.request(
            "schedule.put", orjson.dumps(schedule), headers={"traceparent": header}
        )
    [attempt] = await attempts_of(collector, await one_run(traced))

    assert response["ok"]
    assert (attempt.trace_id == TRACE) is (trace == TRACE)
