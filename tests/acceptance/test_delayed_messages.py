"""Delayed messages with `x-delay`, on a broker that an operator prepared."""

import asyncio
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance.delayed_rig import DelayedRig, whole_second
from tests.acceptance.faults import until_dead
from tests.acceptance.production import Production
from tests.rig.command_line import caller_environment, until_ended
from tests.rig.node_packages import installed_packages
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.dev.plan import ServiceKind
from harebell.messaging.topology.declarations import ExchangeKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

SHOP, SMALL = "shop", "small"
ORDERS, MAIL, FEW = "orders", "shop.mail", "few"
POLICIES = """\
tenants:
  shop: {delayed_exchanges: [orders, shop.mail], quotas: {schedules: null, puts_per_second: null}}
  small: {delayed_exchanges: [few], quotas: {schedules: 2}}
"""
EXAMPLE: Final = Path(__file__).parents[2] / "docs/operations/examples/delayed.mjs"
NEEDS_NODE: Final = pytest.mark.skipif(shutil.which("node") is None, reason="Node is missing.")
TEXTS: Final = {
    "content_type": "application/vnd.shop+json",
    "content_encoding": "gzip",
    "correlation_id": "c-1",
    "reply_to": "shop.replies",
    "type": "order.created",
    "app_id": "checkout",
    "message_id": "all-properties",
}
SENT: Final = whole_second("2026-02-03T04:05:06")
HEADERS: Final[dict[str, Any]] = {
    "text": "é",
    "number": 7,
    "large": 2**40,
    "ratio": 0.5,
    "flag": True,
    "nothing": None,
    "list": [1, "two", None],
    "table": {"inner": {"deep": [True]}},
    "long": "x" * 5000,
    "bytes": bytearray(b"\x00\xff"),
    "time": SENT,
    "host": "checkout-1",
    "x-request-id": "r-7",
}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("delayed")
    policies = root / "tenants.yml"
    policies.write_text(POLICIES)
    exchanges = {
        ORDERS: ExchangeKind.DIRECT,
        MAIL: ExchangeKind.TOPIC,
        FEW: ExchangeKind.FANOUT,
    }
    with Production.open(
        servers, root, tenants=(SHOP, SMALL), delayed_exchanges=exchanges
    ) as opened:
        opened.start(tenants_file=policies, HAREBELL_BROKER_TIMESTAMPS="true")
        yield opened


@dataclass(kw_only=True)
class Shop:
    """The client of the tenant, and the queue of its consumer."""

    production: Production
    harebell: Client
    mail: DelayedRig

    async def dead_letters(self, tenant: str, number: int) -> list[Any]:
        """Return the dead letters of a tenant after their number has reached `number`."""
        async with self.production.client(tenant) as harebell:

            async def find() -> list[Any]:
                found = [each async for each in harebell.dead_letters()]
                return found if len(found) >= number else []

            return await until(find, what=f"{number} dead letters of {tenant}")


@pytest.fixture
async def shop(production: Production) -> AsyncIterator[Shop]:
    async with (
        production.client(SHOP) as harebell,
        DelayedRig.open(production.stack.amqp_url, MAIL) as mail,
    ):
        yield Shop(production=production, harebell=harebell, mail=mail)


@pytest.mark.requirement("ASK-4")
async def test_message_arrives_after_its_delay_with_every_property(shop: Shop) -> None:
    body = b"\x1f\x8b\x00binary"

    began = await shop.mail.publish(
        body, 1_500, key="mail.de", headers=HEADERS, priority=7, timestamp=SENT, **TEXTS
    )
    ((arrived, message),) = await shop.mail.until_received(1)

    assert 1.5 <= arrived - began < 10
    assert (message.body, message.routing_key) == (body, "mail.de")
    assert {name: getattr(message, name) for name in TEXTS} == TEXTS
    assert (message.priority, message.timestamp) == (7, SENT)
    expected = HEADERS | {"x-delay": -1_500}
    assert {name: message.headers[name] for name in expected} == expected
    added = message.headers.keys() - expected.keys()
    assert all(name.startswith(("Harebell-", "Idempotency-")) for name in added), added


@pytest.mark.requirement("ASK-4")
async def test_message_without_properties_gets_no_other_property(shop: Shop) -> None:
    await shop.mail.publish(b"", 200)

    ((_, message),) = await shop.mail.until_received(1)

    assert message.body == b""
    assert (message.content_type, message.app_id, message.type) == (None, None, None)


@pytest.mark.requirement("ASK-4")
@pytest.mark.parametrize("delay", [None, 0, -5])
async def test_message_without_a_delay_arrives_at_once(shop: Shop, delay: int | None) -> None:
    await shop.mail.publish(f"at once {delay}".encode(), delay)

    ((_, message),) = await shop.mail.until_received(1, within=10)

    assert message.headers.get("x-delay") == delay


@pytest.mark.requirement("ASK-4")
async def test_delay_begins_at_the_time_that_rabbitmq_wrote(shop: Shop) -> None:
    # Four to five seconds remain, so that intake reads the message before it is due.
    waits_since = datetime.fromtimestamp(int(time.time()) - 55, UTC)
    headers = {"timestamp_in_ms": int(waits_since.timestamp()) * 1000}

    await shop.mail.publish(b"waited", 60_000, headers=headers)

    ((_, message),) = await shop.mail.until_received(1)
    due = datetime.fromisoformat(str(message.headers["Harebell-Scheduled-For"]))
    assert due == waits_since + timedelta(seconds=60)
    assert message.headers["x-delay"] == -60_000


@pytest.mark.requirement("ASK-4")
async def test_waiting_message_is_listed_replaced_and_cancelled_by_its_id(shop: Shop) -> None:
    for id_, body, delay in (
        ("replaced", b"old", 3_000),
        ("replaced", b"new", 1_000),
        ("cancelled", b"no", 2_000),
        ("years", b"later", 5 * 366 * 86_400_000),
    ):
        await shop.mail.publish(body, delay, message_id=id_)

    async def find() -> bool:
        found = {each.key async for each in shop.harebell.schedules(tag="delayed")}
        return {f"delayed/{MAIL}/{id_}" for id_ in ("replaced", "cancelled", "years")} <= found

    await until(find, what="the waiting messages")
    cancelled = await shop.harebell.cancel(key=f"delayed/{MAIL}/cancelled")
    years = await shop.harebell.schedule(key=f"delayed/{MAIL}/years")
    await shop.mail.publish(b"last", 3_500, message_id="last")
    await shop.mail.until_received(2)

    assert cancelled.ok
    assert years.state == "active"
    assert shop.mail.bodies() == [b"new", b"last"]
    await shop.harebell.cancel(key=f"delayed/{MAIL}/years")


@pytest.mark.requirement("ASK-4")
async def test_equal_messages_without_an_id_all_arrive(shop: Shop) -> None:
    # The client library gives each message an id, and an empty id counts as none.
    for _ in range(3):
        await shop.mail.publish(b"tick", 800, message_id="")

    received = await shop.mail.until_received(3)

    assert [message.body for _, message in received] == [b"tick"] * 3


@pytest.mark.requirement("ASK-4")
async def test_refused_message_becomes_a_dead_letter_of_its_tenant(shop: Shop) -> None:
    mail = shop.mail
    await mail.publish(b"word", "soon", message_id="word")
    await mail.publish(b"long", 11 * 366 * 86_400_000, message_id="long")
    await mail.publish(b"x" * 70_000, 1_000, message_id="large")
    await mail.publish(b"copies", 1_000, message_id="copies", headers={"CC": ["other"]})
    await mail.publish(b"reply", 1_000, message_id="reply", reply_to="umbrella.answers")

    letters = await shop.dead_letters(SHOP, 5)

    details = [await shop.harebell.dead_letter(each.id) for each in letters]
    reasons = {each.payload["message_id"]: each.payload["reason"] for each in details}
    assert reasons == {
        "word": "invalid_delay",
        "long": "invalid_delay",
        "large": "too_large",
        "copies": "reserved_header",
        "reply": "not_allowed",
    }
    word = next(each for each in details if each.payload["message_id"] == "word")
    assert word.payload["headers"]["x-delay"] == "soon"


@pytest.mark.requirement("ASK-4")
async def test_message_beyond_the_quota_of_schedules_becomes_a_dead_letter(shop: Shop) -> None:
    async with DelayedRig.open(shop.production.stack.amqp_url, FEW) as few:
        for number in range(3):
            await few.publish(b"%d" % number, 3_000, message_id=f"m-{number}")

        letters = await shop.dead_letters(SMALL, 1)
        await few.until_received(2)

        assert sorted(few.bodies()) == [b"0", b"1"]
        assert len(letters) == 1


@pytest.mark.long
@pytest.mark.requirement("ASK-4")
@pytest.mark.parametrize("step", ["before", "after"])
async def test_killed_intake_neither_loses_nor_doubles_a_message(shop: Shop, step: str) -> None:
    stack, production = shop.production.stack, shop.production
    start = partial(
        production.start,
        ServiceKind.INTAKE,
        tenants_file=stack.services.root / "tenants.yml",
        HAREBELL_BROKER_TIMESTAMPS="true",
    )
    await asyncio.to_thread(stack.stop, "intake-1")
    expected = [f"{step}-{number}".encode() for number in range(200)]
    # Every second message has no id, so that only its content identifies it.
    for number, body in enumerate(expected):
        await shop.mail.publish(body, 4_000, message_id=f"{step}-{number}" if number % 2 else "")

    failpoint = f"intake.{step}_publish:kill"
    await asyncio.to_thread(start, is_awaited=False, HAREBELL_FAILPOINT=failpoint)
    await until_dead(stack, "intake-1")
    await asyncio.to_thread(start)
    # The ticker applies puts in their order, so this message is due two seconds after every double.
    await shop.mail.publish(b"last", 6_000, message_id=f"last-{step}")
    await shop.mail.until_bodies({*expected, b"last"})

    assert Counter(shop.mail.bodies()) == Counter([*expected, b"last"])


@pytest.mark.long
@NEEDS_NODE
@pytest.mark.requirement("ASK-4")
async def test_node_client_receives_its_message_as_from_the_plugin(
    shop: Shop, tmp_path: Path
) -> None:
    packages = await asyncio.to_thread(installed_packages, os.environ)
    script = tmp_path / "delayed.mjs"
    shutil.copy(EXAMPLE, script)
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")

    process = await asyncio.create_subprocess_exec(
        "node",
        str(script),
        shop.production.stack.amqp_url,
        ORDERS,
        stdout=asyncio.subprocess.PIPE,
        env=caller_environment(),
    )
    async with asyncio.timeout(30):
        done = await until_ended(process)

    received = json.loads(done.output)
    assert done.code == 0
    assert received["waited"] >= 1_000
    assert received["body"] == {"order": 7}
    assert received["headers"]["x-delay"] == -1_000
    assert received["headers"]["x-attempt"] == 3
    assert received["properties"] == {
        "contentType": "application/json",
        "messageId": "order-7",
        "type": "order.reminder",
    }
