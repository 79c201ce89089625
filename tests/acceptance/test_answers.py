"""Every command and every query has an answer, whatever its fields or the stored rows contain."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import Stack, Tenant
from tests.fakes.schema_values import values_of
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.contract.amqp_names import COMMANDS, OPERATIONS_TENANT, QUERIES
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.contract.errors import CommandRejected
from harebell.contract.queries import QUERIES as QUERY_MODELS
from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.long,
]

TENANT: Final = "acme"
KNOWN: Final = {"key": "a", "when": {"every": "1h"}, "target": {"task": {"name": "harebell.echo"}}}
MODELS: Final = {**COMMAND_MODELS, **QUERY_MODELS}
MAX_WAIT: Final = 10.0  # seconds until an answer beside other tests
PROMISED_WAIT: Final = 1.0  # seconds until an answer on an idle machine
EXAMPLES, MANY_EXAMPLES = 3, 150
TASK: Final = {"task": {"name": "harebell.echo"}}
UNKNOWN_TASK: Final = {"task": {"name": "nobody.knows"}}
DAMAGED_TIME: Final = "UPDATE schedules SET created_at = 'infinity' WHERE id = $1"
DAMAGED_VERSION: Final = """
UPDATE schedule_versions SET definition = '{"when": 5}' WHERE schedule_id = $1
"""
DEFECTS: Final = ("handler failed", "background loop failed", "batch split", "Traceback")


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("answers")) as opened:
        opened.start(ServiceCounts())
        yield opened


async def ask_with_each_value(stack: Stack, verb: str, examples: int, *, within: float) -> None:
    """Send requests with generated bodies, one after the other, and wait for each answer."""
    exchange = QUERIES if verb in QUERY_MODELS else COMMANDS
    tenant = OPERATIONS_TENANT if verb in BREAKER_COMMANDS else TENANT
    loop = asyncio.get_running_loop()
    # Values of a known schedule reach the code behind the search for the schedule.
    known = st.fixed_dictionaries({}, optional={"key": st.just("a"), "select": st.just({"all": 1})})

    async with AmqpClient.open(stack.amqp_url, tenant) as client:

        async def ask(body: Any) -> None:
            sent = await client.send(verb, json.dumps(body).encode(), exchange=exchange)
            async with asyncio.timeout(within):
                answer = await sent
            answers = answer if isinstance(answer, list) else [answer]
            codes = [each["error"]["code"] for each in answers if each.get("error")]
            assert "internal_error" not in codes

        @settings(
            max_examples=examples,
            derandomize=examples == EXAMPLES,  # the long test tries other values each time
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(values_of(MODELS[verb].model_json_schema(by_alias=True)), known)
        def every_value_is_answered(body: dict[str, Any], more: dict[str, Any]) -> None:
            used = {name: value for name, value in more.items() if name in body}
            asyncio.run_coroutine_threadsafe(ask(body | used), loop).result()

        await asyncio.to_thread(every_value_is_answered)


async def put_known_schedule(stack: Stack) -> None:
    body = KNOWN | {"expected_version": "any", "revive": True}
    async with AmqpClient.open(stack.amqp_url, TENANT) as client:
        await client.request("schedule.put", json.dumps(body).encode())


def defects_in_logs(stack: Stack) -> list[str]:
    return [
        line
        for _, log in stack.log_tails(lines=100_000)
        for line in log.splitlines()
        if any(each in line for each in DEFECTS)
    ]


@pytest.mark.parametrize("verb", MODELS)
async def test_each_request_is_answered(stack: Stack, verb: str) -> None:
    await put_known_schedule(stack)
    earlier = defects_in_logs(stack)
    await ask_with_each_value(stack, verb, EXAMPLES, within=MAX_WAIT)
    assert defects_in_logs(stack) == earlier


@pytest.mark.long
@pytest.mark.measures
@pytest.mark.timeout(600)
@pytest.mark.parametrize("verb", MODELS)
async def test_each_of_many_requests_is_answered_soon(stack: Stack, verb: str) -> None:
    await put_known_schedule(stack)
    earlier = defects_in_logs(stack)
    await ask_with_each_value(stack, verb, MANY_EXAMPLES, within=PROMISED_WAIT)
    assert defects_in_logs(stack) == earlier


async def error_of(answer: Awaitable[object]) -> CommandRejected:
    with pytest.raises(CommandRejected) as caught:
        async with asyncio.timeout(MAX_WAIT):
            await answer
    return caught.value


async def until_dead_letter_with(tenant: Tenant, error_id: str) -> None:
    async def is_stored() -> bool:
        texts = [each.error or "" async for each in tenant.harebell.dead_letters()]
        return any(error_id in text for text in texts)

    await until(is_stored, what=f"a dead letter with the error {error_id}")


@pytest.mark.parametrize(
    ("service", "request_of", "damage"),
    [("intake", Client.schedule, DAMAGED_TIME), ("ticker", Client.pause, DAMAGED_VERSION)],
)
async def test_error_that_no_rule_foresaw_is_answered_logged_and_dead_lettered(
    stack: Stack, service: str, request_of: Callable[..., Awaitable[object]], damage: str
) -> None:
    async with stack.tenant(f"damaged-{service}") as tenant:
        damaged = await tenant.put("damaged", {"every": "1d"}, TASK)
        await tenant.put("sound", {"every": "1d"}, TASK)
        await tenant.ledger.execute(damage, UUID(damaged))
        stack.kill("ticker-1")  # its memory contains the sound version
        stack.start_one(ServiceKind.TICKER)

        failed, _ = await asyncio.gather(
            error_of(request_of(tenant.harebell, key="damaged")),
            request_of(tenant.harebell, key="sound"),
        )

        assert failed.code == "internal_error"
        (error_id,) = re.findall(r"\b[0-9a-f]{12}\b", failed.reason)
        assert f'"error_id": "{error_id}"' in stack.log_of(f"{service}-1")
        await until_dead_letter_with(tenant, error_id)


@pytest.mark.requirement("S112")
async def test_replay_job_that_cannot_continue_is_paused_and_delays_no_other(stack: Stack) -> None:
    async with stack.tenant("replaying") as tenant:
        for key, tag in (("a1", "a"), ("a2", "a"), ("b", "b")):
            await tenant.put(key, {"now": True}, UNKNOWN_TASK, tags=[tag])
        await tenant.until_runs(3, "dead")
        first = await start_replays_of(tenant, "a", rate=0.001)
        await tenant.harebell.pause_replay_job(first)
        await tenant.ledger.execute("UPDATE replay_jobs SET rate = 1e-300 WHERE id = $1", first)
        await tenant.harebell.resume_replay_job(first)
        second = await start_replays_of(tenant, "b")

        async def are_over() -> bool:
            jobs = [await tenant.harebell.replay_job(each) for each in (first, second)]
            return [each.state for each in jobs] == ["paused", "done"]

        await until(are_over, what="the end of the second replay job")
        reason = (await tenant.harebell.replay_job(first)).reason
        assert "OverflowError" in (reason or "")


async def start_replays_of(tenant: Tenant, tag: str, *, rate: float | None = None) -> UUID:
    """Start a replay job, which replays its first dead letter at once."""

    async def are_stored() -> bool:
        return bool([each async for each in tenant.harebell.dead_letters(tag=tag)])

    await until(are_stored, what=f"the dead letters of {tag}")
    started = await tenant.harebell.start_replay_job(select={"tag": tag}, rate=rate)
    assert started.id is not None
    return started.id
