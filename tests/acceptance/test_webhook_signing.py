"""Signed calls of real runs: receivers accept them, and forged, old and foreign calls fail."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any, Final
from uuid import uuid4

import aio_pika
import orjson
import pytest
from aiohttp import ClientSession, web
from tests.acceptance.receivers import (
    ReceivedCall,
    Receiver,
    node_ed25519,
    node_library,
    python_ed25519,
    python_library,
)
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import CommandRejected
from harebell.contract.ids import RunKey
from harebell.dev.ports import LOOPBACK, choose_ports
from harebell.domain.webhook_signature import (
    MessageSigner,
    PrivateKey,
    hmac_text,
    parse_signing_key,
    private_text,
)

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, UMBRELLA = "acme", "umbrella"
HMAC_RECEIVERS: Final = (python_library, node_library)
ED25519_RECEIVERS: Final = (python_ed25519, node_ed25519)
BODY: Final = {"order": 7, "name": "Zoë"}
TOO_OLD: Final = 600  # seconds
TIMEOUT: Final = 60.0  # seconds
RETRY: Final = {"max_attempts": 50, "backoff": {"base": "200ms", "cap": "200ms", "jitter": "none"}}


@dataclass(frozen=True, slots=True)
class Keys:
    """The files of the signing keys."""

    directory: Path

    def write(self, tenant: str, name: str, text: str) -> str:
        (self.directory / tenant).mkdir(exist_ok=True)
        draft = self.directory / tenant / f".{name}"
        draft.write_text(text)
        draft.replace(self.directory / tenant / name)
        return text

    def text(self, tenant: str, name: str) -> str:
        return (self.directory / tenant / name).read_text()

    def public(self, tenant: str, name: str) -> str:
        text = self.text(tenant, name)
        key = parse_signing_key(text)
        return key.public_key().text() if isinstance(key, PrivateKey) else text


def new_hmac() -> str:
    return hmac_text(secrets.token_bytes(32))


def new_ed25519() -> str:
    return private_text(secrets.token_bytes(32))


@dataclass
class Inbox:
    """A web service that records each request with its headers and its body."""

    url: str = ""
    calls: "asyncio.Queue[ReceivedCall]" = field(default_factory=asyncio.Queue)

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.put_nowait(ReceivedCall(headers=headers, body=await request.read()))
        return web.Response()

    async def next_call(self) -> ReceivedCall:
        return await asyncio.wait_for(self.calls.get(), TIMEOUT)

    def http(self) -> dict[str, Any]:
        return {"http": {"url": self.url, "json": BODY}}


@asynccontextmanager
async def open_inbox(port: int = 0) -> AsyncIterator[Inbox]:
    inbox = Inbox()
    app = web.Application()
    app.router.add_route("*", "/hook", inbox.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
        inbox.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/hook"
        yield inbox
    finally:
        await runner.cleanup()


@pytest.fixture
async def inbox() -> AsyncIterator[Inbox]:
    async with open_inbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    keys = Keys(tmp_path_factory.mktemp("secrets"))
    for tenant in (ACME, UMBRELLA, "harebell"):
        keys.write(tenant, "old", new_hmac())
        keys.write(tenant, "new", new_hmac())
        keys.write(tenant, "pair", new_ed25519())
    return keys


@pytest.fixture(scope="module")
def alert_port(servers: Servers) -> int:
    """Return a port for the webhook of alerts, which one test serves."""
    del servers  # the port is chosen after those of the servers
    return choose_ports(["alerts"], seed="test_webhook_signing", remembered={})["alerts"]


@pytest.fixture(scope="module")
def stack(
    servers: Servers, keys: Keys, alert_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("signing")
    signing = [{"secret": "new"}, {"secret": "old"}, {"secret": "pair"}]
    policies = {"defaults": {"signing": signing, "exchanges": ["signed"]}}
    (root / "tenants.json").write_bytes(orjson.dumps(policies))
    with Stack.open(servers, root) as opened:
        opened.start(
            HAREBELL_SECRETS_DIR=str(keys.directory),
            HAREBELL_TENANTS_FILE=str(root / "tenants.json"),
            HAREBELL_ALERT_WEBHOOK_URL=f"http://{LOOPBACK}:{alert_port}/hook",
            HAREBELL_ALERT_SIGNING="new,pair",
            HAREBELL_ALERT_DEAD_LETTER_COUNT="0",
        )
        yield opened


@pytest.fixture
async def acme(stack: Stack) -> AsyncIterator[Tenant]:
    async with stack.tenant(ACME) as opened:
        yield opened


@pytest.fixture
async def umbrella(stack: Stack) -> AsyncIterator[Tenant]:
    async with stack.tenant(UMBRELLA) as opened:
        yield opened


async def accepted(
    receivers: tuple[Receiver, ...], key: str, *calls: ReceivedCall
) -> list[list[bool]]:
    """Return the results of each receiver. They read the true time, so no test delays them."""
    return [await asyncio.to_thread(receiver, key, calls) for receiver in receivers]


def key_of_test() -> str:
    return f"signed-{uuid4()}"


@pytest.mark.long
@pytest.mark.requirement("P8")
async def test_receivers_accept_an_http_call_and_reject_altered_old_and_forged_ones(
    acme: Tenant, umbrella: Tenant, inbox: Inbox, keys: Keys
) -> None:
    await acme.put(key_of_test(), {"now": True}, inbox.http())
    call = await inbox.next_call()
    await umbrella.put(key_of_test(), {"now": True}, inbox.http())
    foreign = await inbox.next_call()
    async with ClientSession() as attacker:  # any sender can reach the target
        chosen = {"Idempotency-Key": "run-1", "Harebell-Fencing-Token": "999999"}
        guess = {"webhook-id": "run-1", "webhook-timestamp": str(int(time()))}
        forged = [chosen, {**chosen, **guess, "webhook-signature": "v1,AAAA v1a,AAAA"}]
        for headers in forged:
            await (await attacker.post(inbox.url, json=BODY, headers=headers)).release()
    unsigned, guessed = await inbox.next_call(), await inbox.next_call()
    run_id, second = call.headers["webhook-id"], int(call.headers["webhook-timestamp"])
    wrong = [
        unsigned,
        guessed,
        foreign,
        call.altered(body=call.body.replace(b"7", b"8")),
        call.altered(webhook_id=guessed.headers["webhook-id"]),
        call.altered(webhook_timestamp=str(second + 1)),
    ]

    for name, receivers in (
        ("new", HMAC_RECEIVERS),
        ("old", HMAC_RECEIVERS),
        ("pair", ED25519_RECEIVERS),
    ):
        signer = MessageSigner([parse_signing_key(keys.text(ACME, name))], run_id, second - TOO_OLD)
        old = ReceivedCall(headers=signer.headers(call.body), body=call.body)
        results = await accepted(receivers, keys.public(ACME, name), call, *wrong, old)
        assert results == [[True] + [False] * 7] * 2
        assert await accepted(receivers, keys.public(UMBRELLA, name), foreign, call) == (
            [[True, False]] * 2
        )
    assert orjson.loads(call.body) == BODY
    assert run_id == call.headers["harebell-run-id"] == call.headers["idempotency-key"]
    assert (call.headers["harebell-tenant"], foreign.headers["harebell-tenant"]) == (ACME, UMBRELLA)
    assert [each.partition(",")[0] for each in call.headers["webhook-signature"].split(" ")] == [
        "v1",
        "v1",
        "v1a",
    ]
    [attempt] = await acme.attempts(str(RunKey.parse(run_id)))
    assert second == int(attempt["started_at"].timestamp())


@pytest.mark.long
@pytest.mark.requirement("P8")
async def test_receivers_accept_an_amqp_message_and_reject_an_altered_one(
    acme: Tenant, keys: Keys
) -> None:
    target = {"amqp": {"exchange": "signed", "routing_key": "due", "json": BODY}}
    async with await aio_pika.connect(acme.stack.amqp_url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("signed", aio_pika.ExchangeType.DIRECT)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "due")
        await acme.put(key_of_test(), {"now": True}, target)

        async def take() -> Any:
            return await queue.get(fail=False, no_ack=True)

        message = await until(take, what="a message")
    headers = {name.lower(): str(value) for name, value in message.headers.items()}
    call = ReceivedCall(headers=headers, body=message.body)
    altered = call.altered(body=b"{}")

    assert await accepted(HMAC_RECEIVERS, keys.text(ACME, "new"), call, altered) == (
        [[True, False]] * 2
    )
    assert await accepted(ED25519_RECEIVERS, keys.public(ACME, "pair"), call, altered) == (
        [[True, False]] * 2
    )
    assert headers["webhook-id"] == message.message_id == headers["harebell-run-id"]
    assert headers["harebell-tenant"] == ACME


@pytest.mark.long
@pytest.mark.requirement("P8")
async def test_receivers_accept_an_alert_with_the_keys_of_the_operators(
    acme: Tenant, keys: Keys, alert_port: int
) -> None:
    target = {"http": {"url": f"http://{LOOPBACK}:1/", "json": BODY}}
    async with open_inbox(alert_port) as chat:
        await acme.put(key_of_test(), {"now": True}, target, retry={"max_attempts": 1})
        alert = await chat.next_call()

    event = orjson.loads(alert.body)["event"]
    assert alert.headers["webhook-id"] == event["id"].replace(".", "%2E")
    altered = alert.altered(body=alert.body.replace(b"acme", b"umbr"))
    assert await accepted(HMAC_RECEIVERS, keys.text("harebell", "new"), alert, altered) == (
        [[True, False]] * 2
    )
    assert await accepted(ED25519_RECEIVERS, keys.public("harebell", "pair"), alert, altered) == (
        [[True, False]] * 2
    )
    assert await accepted(HMAC_RECEIVERS, keys.text(ACME, "new"), alert) == [[False]] * 2


@pytest.mark.long
@pytest.mark.requirement("P8")
async def test_call_waits_for_its_key_and_uses_the_content_of_a_rotated_file(
    acme: Tenant, inbox: Inbox, keys: Keys
) -> None:
    name, file = key_of_test(), f"late-{uuid4()}"
    await acme.put(name, {"now": True}, inbox.http(), sign=[file], retry=RETRY)

    async def failed() -> list[Any]:
        rows = await acme.ledger.fetch("SELECT error_code FROM attempts WHERE error_code LIKE 's%'")
        return [row["error_code"] for row in rows]

    assert set(await until(failed, what="a failed attempt")) == {"secret_missing"}
    keys.write(ACME, file, "swordfish")

    async def malformed() -> bool:
        return "signing_key_invalid" in await failed()

    await until(malformed, what="an attempt with a malformed key")
    assert inbox.calls.empty()

    first = keys.write(ACME, file, new_hmac())
    call = await inbox.next_call()
    second = keys.write(ACME, file, new_hmac())

    async def rotated() -> bool:
        await acme.harebell.trigger(key=name)
        return (await accepted((python_library,), second, await inbox.next_call())) == [[True]]

    assert await accepted(HMAC_RECEIVERS, first, call) == [[True]] * 2
    await until(rotated, what="a call with the rotated key")
    assert "swordfish" not in acme.stack.log_of("executor-1")
    with pytest.raises(CommandRejected) as caught:
        await acme.put(
            key_of_test(),
            {"now": True},
            {"http": {"url": inbox.url, "headers": {"Webhook-Signature": "v1,x"}}},
        )
    assert caught.value.code == "reserved_header"
