"""A tenant cannot remove, replace or read the dead letters and the runs of another tenant."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import aio_pika
import orjson
import pytest
from pamqp.common import FieldTable
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import Tenant, now, run_id, time_in
from tests.rig.polling import until
from tests.rig.servers import as_role

from harebell.client import DeadLetterDetail
from harebell.contract.amqp_names import DEAD, OPERATIONS_TENANT, WORK
from harebell.contract.errors import HarebellError
from harebell.contract.types import instant_text
from harebell.dlq_inspector.maintenance import apply_retention
from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime.settings import DlqInspectorSettings, PoolBounds
from harebell.storage.engine import open_pool

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.requirement("P4"),
]

ONCE: Final = {"max_attempts": 1}
DIES: Final = {"task": {"name": "umbrella.dies", "args": {}}}  # no executor has this task
LEAD: Final = 2.0  # seconds in which the attacker imports before the run dies
MARK: Final = "known-only-to-umbrella"
MAX_COUNT: Final = 1_000  # the least bound of dead letters
SURPLUS: Final = 100
BATCH: Final = 100  # dead letters of one import


@pytest.fixture
async def umbrella(tenant: Tenant) -> AsyncIterator[Tenant]:
    """Yield the victim, a tenant of the same stack."""
    async with tenant.stack.tenant(f"{tenant.name[:50]}-u") as opened:
        yield opened


def dead_run(tenant: Tenant, schedule: str, at: datetime, **fields: Any) -> dict[str, Any]:
    """Return the export of a dead run of that schedule, as the tenant may write it by hand."""
    payload = {
        "run_id": run_id(schedule, at),
        "tenant": tenant.name,
        "schedule_id": schedule,
        "scheduled_for": instant_text(at),
        "version": 1,
        "replay_number": 0,
        "reason": "attempts_exhausted",
        "error_code": "planted",
        "dead_at": instant_text(now()),
        "target": DIES,
        "attempts": [],
    }
    return {"kind": "run", "payload": payload | fields, "body": None}


async def dead_letters_of(tenant: Tenant, count: int = 1) -> list[DeadLetterDetail]:
    """Return the dead letters of the tenant after their number reaches `count`."""

    async def found() -> list[UUID]:
        ids = [each.id async for each in tenant.harebell.dead_letters(state="all")]
        return ids if len(ids) >= count else []

    ids = await until(found, what=f"{count} dead letters of {tenant.name}")
    return [await tenant.harebell.dead_letter(id_) for id_ in ids]


async def test_import_does_not_take_the_place_of_a_later_dead_letter(
    tenant: Tenant, umbrella: Tenant
) -> None:
    at = time_in(LEAD)
    schedule = await umbrella.put("report", {"at": instant_text(at)}, DIES, retry=ONCE)

    planted = await tenant.harebell.import_dead_letters([dead_run(tenant, schedule, at)])

    [real] = await dead_letters_of(umbrella)
    assert (real.run_id, real.error_code) == (run_id(schedule, at), "unknown_task")
    [own] = await dead_letters_of(tenant)
    assert planted.results == {str(own.id): "imported"}
    assert own.id != real.id
    replayed = await umbrella.harebell.replay([real.id])
    assert replayed.results == {str(real.id): "replayed"}


async def test_import_shows_and_changes_no_run_of_another_tenant(
    tenant: Tenant, umbrella: Tenant
) -> None:
    at = time_in(0)
    schedule = await umbrella.put("report", {"at": instant_text(at)}, DIES, retry=ONCE)
    [real] = await dead_letters_of(umbrella)
    await umbrella.harebell.replay([real.id], note=MARK)
    await dead_letters_of(umbrella, 2)
    before = await umbrella.run(run_id(schedule, at))
    planted = [dead_run(tenant, schedule, at, replay_number=number) for number in (1, 7)]

    response = await tenant.harebell.import_dead_letters(planted)

    shown = await dead_letters_of(tenant, len(planted))
    assert {(each.run_state, each.replays, len(each.replay_history)) for each in shown} == {
        (None, 0, 0)
    }
    assert MARK not in str(shown)
    replayed = await tenant.harebell.replay([each.id for each in shown])
    assert set(replayed.results.values()) == {"not_replayable"}
    assert set(response.results) == {str(each.id) for each in shown}
    assert await umbrella.run(run_id(schedule, at)) == before
    history = [each.replay_history for each in await dead_letters_of(umbrella, 2)]
    assert {note.note for notes in history for note in notes} == {MARK}


async def test_own_dead_letter_is_restored_by_its_import(tenant: Tenant) -> None:
    await tenant.put("report", {"now": True}, DIES, retry=ONCE)
    [real] = await dead_letters_of(tenant)
    exported = {"kind": real.kind, "payload": real.payload, "body": real.body}
    await tenant.ledger.execute("DELETE FROM dead_letters WHERE tenant = $1", tenant.name)

    first = await tenant.harebell.import_dead_letters([exported])
    second = await tenant.harebell.import_dead_letters([exported])

    assert first.results == {str(real.id): "imported"}
    assert second.results == {str(real.id): "already_present"}
    assert (await tenant.harebell.replay([real.id])).results == {str(real.id): "replayed"}


async def test_imports_evict_only_dead_letters_of_their_tenant(
    tenant: Tenant, umbrella: Tenant
) -> None:
    await umbrella.put("report", {"now": True}, DIES, retry=ONCE)
    [real] = await dead_letters_of(umbrella)
    schedule, at = str(UUID(int=1)), time_in(0)
    late = dead_run(tenant, schedule, at, dead_at="2199-01-01T00:00:00Z")

    with pytest.raises(HarebellError) as refused:
        await tenant.harebell.import_dead_letters([late])
    for first in range(0, MAX_COUNT + SURPLUS, BATCH):
        flood = [
            dead_run(tenant, schedule, at + timedelta(seconds=first + number))
            for number in range(BATCH)
        ]
        await tenant.harebell.import_dead_letters(flood)
    await keep(tenant, MAX_COUNT)

    assert (refused.value.code, refused.value.field) == (
        "future_dead_at",
        "dead_letters[0].dead_at",
    )
    assert [each.id for each in await dead_letters_of(umbrella)] == [real.id]
    count = "SELECT count(*) FROM dead_letters WHERE tenant = $1"
    assert await tenant.ledger.fetchval(count, tenant.name) == MAX_COUNT


async def keep(tenant: Tenant, max_count: int) -> None:
    """Apply the retention as a dlq_inspector with this bound does."""
    url = as_role(tenant.stack.database_url, "dlq_inspector")
    settings = DlqInspectorSettings.load(
        {
            "HAREBELL_AMQP_URL": tenant.stack.amqp_url,
            "HAREBELL_DATABASE_URL": url,
            "HAREBELL_DEAD_LETTER_MAX_COUNT": str(max_count),
        }
    )
    async with open_pool(url, name="retention", bounds=PoolBounds()) as pool:
        await apply_retention(pool, settings, TenantPolicies.unrestricted())


async def test_message_without_a_tenant_is_shown_to_the_operators_only(
    tenant: Tenant, umbrella: Tenant
) -> None:
    ticket = {"run_spec": {"tenant": umbrella.name, "target": {"http": {"url": MARK}}}}
    body, name = orjson.dumps([ticket]), tenant.name
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        message = aio_pika.Message(body, message_id=name, type="harebell.ticket.batch.v2")
        await publish(amqp, WORK, message)
        async with (
            tenant.stack.tenant(OPERATIONS_TENANT) as operators,
            tenant.stack.tenant("default") as default,
        ):
            stored = await until(lambda: stored_message(tenant, name), what="the dead letter")
            shown = await operators.harebell.dead_letter(stored["id"])
            for other in (default, tenant, umbrella):
                with pytest.raises(HarebellError, match="no dead letter"):
                    await other.harebell.dead_letter(stored["id"])

    assert (stored["tenant"], shown.tenant) == (OPERATIONS_TENANT, OPERATIONS_TENANT)
    assert shown.queue == "harebell.work.default.normal"


async def test_dead_tickets_of_a_batch_belong_to_their_own_tenants(
    tenant: Tenant, umbrella: Tenant
) -> None:
    """The broker dead-letters such a batch after too many deliveries."""
    batch = [
        {"run_spec": {"tenant": each.name, "target": {"http": {"url": f"https://{each.name}/"}}}}
        for each in (umbrella, tenant)
    ]
    death: FieldTable = {
        "queue": "harebell.work.default.normal",
        "reason": "delivery_limit",
        "count": 1,
    }
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        message = aio_pika.Message(
            orjson.dumps(batch), type="harebell.ticket.batch.v1", headers={"x-death": [death]}
        )
        await publish(amqp, DEAD, message)
        found = await asyncio.gather(dead_letters_of(tenant), dead_letters_of(umbrella))

    bodies = [(await stored_body(each, each.name)) for each in (tenant, umbrella)]
    assert [len(each) for each in found] == [1, 1]
    assert [orjson.loads(body) for body in bodies] == [[batch[1]], [batch[0]]]


async def stored_message(tenant: Tenant, message_id: str) -> Any:
    find = "SELECT id, tenant FROM dead_letters WHERE payload->>'message_id' = $1"
    return await tenant.ledger.fetchrow(find, message_id)


async def stored_body(tenant: Tenant, name: str) -> bytes:
    find = "SELECT body FROM dead_letters WHERE tenant = $1"
    body: bytes = await tenant.ledger.fetchval(find, name)
    return body


async def publish(amqp: AmqpClient, exchange: str, message: aio_pika.Message) -> None:
    """Publish a message with the rights of a service."""
    target = await amqp.channel.get_exchange(exchange, ensure=False)
    await target.publish(message, "default.normal")
