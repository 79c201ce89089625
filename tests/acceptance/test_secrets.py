"""Secrets of real runs: targets receive them, and no other place contains them."""

import asyncio
import base64
import json
import shlex
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import UUID, uuid4

import aio_pika
import asyncpg
import pytest
from aiohttp import web
from tests.acceptance import tasks
from tests.acceptance.production import Production
from tests.acceptance.stack import Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers
from tests.rig.task_plugins import install
from typer.testing import CliRunner

from harebell.cli.app import app
from harebell.cli.framework.process import ProcessContext
from harebell.client import Client, CommandRejected
from harebell.contract.amqp_names import tenant_exchange
from harebell.dev.plan import ServiceKind
from harebell.dev.ports import LOOPBACK
from harebell.dev.servers import run_concurrently
from harebell.executor.targets.secret_values import ELLIPSIS
from harebell.messaging.topology.bus import DEAD_RECENT, EVENTS_RECENT

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.requirement("P7"),
]

ACME, OPERATOR, TASK = "acme", "harebell_operator", "test.remind"
ONCE: Final = {"max_attempts": 1}
RETRY: Final = {"max_attempts": 100, "backoff": {"base": "200ms", "cap": "200ms", "jitter": "none"}}
MAX_MESSAGES: Final = 1_000  # of one queue
NOW: Final = {"now": True}
FAR: Final = {"at": "2099-01-01T00:00:00Z"}


@dataclass
class Echo:
    """A web service that sends its request headers back and keeps them by path.

    It begins with one of them in all encodings, in an order that is different for each path.
    """

    url: str = ""
    headers: "defaultdict[str, list[dict[str, str]]]" = field(
        default_factory=lambda: defaultdict(list)
    )

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.headers[request.path].append(headers)
        status = 400 if "fails" in request.path else 200
        encoded = encodings_of(headers.get("x-any", ""))
        turn = len(request.path) % len(encoded)
        body = [*encoded[turn:], *encoded[:turn], headers]
        return web.json_response(body, status=status)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    opened = Echo()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", opened.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    opened.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    yield opened
    await runner.cleanup()


@dataclass(kw_only=True)
class Installation:
    """A production stack with the files of the secrets."""

    production: Production
    secrets: Path

    def write(self, name: str, value: str) -> str:
        draft = self.secrets / ACME / f".{name}"
        draft.write_text(value + "\n")
        draft.replace(self.secrets / ACME / name)
        return value

    @asynccontextmanager
    async def tenant(self, login: str = ACME) -> AsyncIterator[Tenant]:
        stack = self.production.stack
        url = self.production.url(login)
        exchange = tenant_exchange(ACME) if login == ACME else None
        async with (
            stack.tenant(ACME) as owner,
            Client.connect(url, tenant=ACME, exchange=exchange) as harebell,
        ):
            yield Tenant(name=ACME, stack=stack, harebell=harebell, ledger=owner.ledger)

    async def command(self, line: str) -> str:
        """Return the output of a `harebell` command of the tenant on both streams."""
        process = ProcessContext(now=lambda: datetime.now(UTC))
        environment = {
            "HAREBELL_AMQP_URL": self.production.url(ACME),
            "HAREBELL_TENANT": ACME,
            "HAREBELL_EXCHANGE": tenant_exchange(ACME),
        }
        result = await asyncio.to_thread(
            CliRunner().invoke, app, shlex.split(line), env=environment, obj=process
        )
        return result.stdout + result.stderr


@pytest.fixture(scope="module")
def installation(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    root = tmp_path_factory.mktemp("secrets")
    plugins = install(root / "plugins", "secrets", {TASK: f"{tasks.__name__}:remind"})
    secrets = root / "files"
    (secrets / ACME).mkdir(parents=True)
    policies = root / "tenants.json"
    policies.write_text(
        json.dumps({"tenants": {ACME: {}, "strict": {"literal_secrets": "refuse"}}})
    )
    with Production.open(
        servers, root / "stack", tenants=(ACME, "strict"), declares=True
    ) as production:

        def start(kind: ServiceKind) -> None:
            production.stack.start_one(
                kind,
                1,
                ready=True,
                HAREBELL_AMQP_URL=production.url(f"harebell_{kind}"),
                HAREBELL_TOPOLOGY_MODE="check",
                HAREBELL_SECRETS_DIR=str(secrets),
                HAREBELL_TENANTS_FILE=str(policies),
                **(plugins if kind is ServiceKind.EXECUTOR else {}),
            )

        run_concurrently([partial(start, kind) for kind in ServiceKind])
        yield Installation(production=production, secrets=secrets)


def encodings_of(value: str) -> list[str]:
    """Return some encodings in which a target may send a value back."""
    return [
        value.encode().hex(),
        base64.b64encode(value.encode()).decode(),
        base64.b32encode(value.encode()).decode(),
        value.upper(),
        value[::-1],
        "".join(f"&#{ord(letter)};" for letter in value),
        "".join(f"\\u{ord(letter):04x}" for letter in value),
        "".join(f"%{ord(letter):02X}" for letter in value),
    ]


def forms_of(value: str) -> list[bytes]:
    """Return the bytes that show that a place contains the value, also in hex and in base64."""
    raw = value.encode()
    encoded = [base64.b64encode(b"\0" * shift + raw)[4:-4] for shift in range(3)]
    return [raw, *encoded, *(each.encode() for each in encodings_of(value))]


def places_with(value: str, places: Mapping[str, bytes]) -> list[str]:
    return [name for name, text in places.items() if any(form in text for form in forms_of(value))]


async def tables(ledger: asyncpg.Connection) -> dict[str, bytes]:
    find = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    names = [row["tablename"] for row in await ledger.fetch(find)]
    return {
        f"table {name}": "\n".join(
            row["row"]
            for row in await ledger.fetch(f"SELECT row_to_json(t)::text AS row FROM {name} t")  # noqa: S608  # of the catalogue
        ).encode()
        for name in names
    }


async def queues(installation: Installation) -> dict[str, bytes]:
    """Return the messages of every queue with their headers, and leave them in the queues."""
    stack = installation.production.stack
    host = quote(urlsplit(stack.amqp_url).path.removeprefix("/"), safe="")
    names = [
        each["name"]
        for each in stack.servers.management("GET", f"queues/{host}")
        if not each["arguments"].get("x-single-active-consumer")  # its consumer keeps it empty
    ]
    found: dict[str, bytes] = {}
    async with await aio_pika.connect(stack.amqp_url) as connection:
        channel = await connection.channel()
        for name in names:
            if not name.startswith("harebell.") or ".control." in name:
                continue
            queue = await channel.get_queue(name, ensure=False)
            texts: list[bytes] = []
            while len(texts) < MAX_MESSAGES and (message := await queue.get(fail=False)):
                texts.append(message.body + str(message.headers).encode())
            found[f"queue {name}"] = b"\n".join(texts)
    return found


def files(directory: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


@asynccontextmanager
async def events_of(installation: Installation) -> AsyncIterator[list[bytes]]:
    seen: list[bytes] = []

    async def collect(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        seen.append(message.body + str(message.headers).encode())

    async with await aio_pika.connect(installation.production.stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("harebell.events", "#")
        await queue.consume(collect, no_ack=True)
        yield seen


async def dead_letter(tenant: Tenant, key: str) -> UUID:
    async def find() -> UUID | None:
        rows = [row async for row in tenant.harebell.dead_letters(key=key)]
        return rows[0].id if rows else None

    found = await until(find, what="a dead letter")
    assert found is not None
    return found


async def outputs(
    installation: Installation, schedules: list[str], dead: UUID, run: str
) -> dict[str, bytes]:
    commands = [
        "export",
        "dlq export",
        "schedule list -o json",
        "run list -o json",
        f"run get {run} -o json",
        f"dlq get {dead} -o json",
        f"dlq get {dead}",
        *(f"schedule {verb} {key} -o json" for key in schedules for verb in ("get", "history")),
        *(f"why {key}" for key in schedules),
    ]
    return {each: (await installation.command(each)).encode() for each in commands}


@pytest.mark.long
async def test_referenced_secret_reaches_its_target_and_no_other_place(
    installation: Installation, echo: Echo, tmp_path: Path
) -> None:
    header = installation.write("header", f"header-{uuid4()}")
    password = installation.write("password", f"password-{uuid4()}")
    amqp = installation.write("amqp", f"amqp-{uuid4()}")
    record = installation.write("file", str(tmp_path / f"file-{uuid4()}"))
    call = {
        "headers": {"X-Any": {"secret": "header"}, "X-Api-Key": {"secret": "header"}},
        "userinfo": {"user": "shop", "password": {"secret": "password"}},
        "json": {"n": 1},
    }
    async with (
        installation.tenant() as tenant,
        events_of(installation) as events,
        await aio_pika.connect(installation.production.url(ACME)) as connection,
    ):
        channel = await connection.channel()
        exchange = await channel.declare_exchange("acme.jobs", auto_delete=True)
        queue = await channel.declare_queue("acme.inbox", exclusive=True)
        await queue.bind(exchange, "due")
        targets: dict[str, Any] = {
            "ok": {"http": {"url": f"{echo.url}/ok", **call}},
            "fails": {"http": {"url": f"{echo.url}/fails", **call}},
            "amqp": {
                "amqp": {
                    "exchange": "acme.jobs",
                    "routing_key": "due",
                    "headers": {"shop-token": {"secret": "amqp"}},
                }
            },
            "task": {"task": {"name": TASK, "args": {"file": {"secret": "file"}}}},
            "task-fails": {"task": {"name": TASK, "args": {"no": [{"secret": "header"}]}}},
        }
        answers = [
            await tenant.harebell.put({"key": key, "when": NOW, "target": target, "retry": ONCE})
            for key, target in targets.items()
        ]
        await tenant.put("stored", FAR, targets["ok"])  # an export omits completed schedules
        await tenant.until_runs(3, "succeeded")
        [dead_run, _] = await tenant.until_runs(2, "dead")
        message = await until(lambda: queue.get(fail=False, no_ack=True), what="the message")
        dead = await dead_letter(tenant, "fails")
        run = f"{answers[1].id}"
        runs = [row.run_id async for row in tenant.harebell.runs(key="fails")]

        token = base64.b64encode(f"shop:{password}".encode()).decode()
        for path in ("/ok", "/fails"):
            [received] = echo.headers[path]
            assert (received["x-any"], received["x-api-key"]) == (header, header)
            assert received["authorization"] == f"Basic {token}"
        assert message is not None
        assert message.headers["shop-token"] == amqp
        assert await asyncio.to_thread(Path(record).read_text)

        shown = await outputs(installation, list(targets), dead, runs[0])
        places = {
            **await tables(tenant.ledger),
            **await queues(installation),
            **files(installation.production.stack.services.root),
            **shown,
            "events": b"\n".join(events),
            "answers": "\n".join(each.model_dump_json() for each in answers).encode(),
        }
        data = installation.production.stack.servers.private
        assert data is not None
        broker_files = files(data.root / "rabbitmq")

    # each search can find something, because the names of the secrets are public
    assert b"secret: header" in places["export"]
    assert ELLIPSIS.encode() in places["table attempts"]
    assert dead_run["state"] == "dead"
    assert (
        run.encode() in places[f"queue {DEAD_RECENT.name}"] + places[f"queue {EVENTS_RECENT.name}"]
    )
    assert any(b"acme" in content for content in broker_files.values())
    for value in (header, password, token, record, amqp):
        assert places_with(value, places) == []
    # the message of an AMQP target contains its header, in the queue of the tenant
    for value in (header, password, token, record):
        assert places_with(value, broker_files) == []


@pytest.mark.long
async def test_rotation_changes_the_next_attempt_and_no_schedule(
    installation: Installation, echo: Echo
) -> None:
    first = installation.write("rotated", f"first-{uuid4()}")
    target = {"http": {"url": f"{echo.url}/rotated", "headers": {"X-Any": {"secret": "rotated"}}}}
    async with installation.tenant() as tenant:
        await tenant.put("rotation", {"every": "1s"}, target)
        await until(lambda: _received(echo, "/rotated", first), what="the first value")
        second = installation.write("rotated", f"second-{uuid4()}")

        await until(lambda: _received(echo, "/rotated", second), what="the second value", within=20)

        stored = await tenant.harebell.schedule(key="rotation")
        await tenant.harebell.cancel(key="rotation")
    assert stored.version == 1


async def _received(echo: Echo, path: str, value: str) -> bool:
    return any(headers["x-any"] == value for headers in echo.headers[path])


async def test_missing_secret_is_retried_until_its_file_exists(
    installation: Installation, echo: Echo
) -> None:
    target = {"http": {"url": f"{echo.url}/late", "headers": {"X-Any": {"secret": "late"}}}}
    async with installation.tenant() as tenant:
        await tenant.put("late", NOW, target, retry=RETRY)

        async def failed() -> Any:
            rows = [row async for row in tenant.harebell.runs(key="late")]
            detail = await tenant.harebell.run(rows[0].run_id) if rows else None
            return detail if detail is not None and detail.attempts else None

        detail = await until(failed, what="a failed attempt")
        assert echo.headers["/late"] == []
        value = installation.write("late", f"late-{uuid4()}")
        await until(lambda: _received(echo, "/late", value), what="the call")

    assert detail is not None
    assert detail.attempts[0].error_code == "secret_missing"
    assert "'late'" in (detail.attempts[0].error or "")


async def test_literal_secrets_are_redacted_and_only_an_operator_reveals_them(
    installation: Installation, echo: Echo, tmp_path: Path
) -> None:
    bearer, key, password = (f"literal-{uuid4()}" for _ in range(3))
    address = echo.url.replace("http://", f"http://shop:{password}@")
    headers = {"X-Plain": "plain", "x-api-KEY": key, "Cookie": bearer}
    target = {"http": {"url": f"{address}/literal-fails", "headers": headers}}
    async with installation.tenant() as tenant, events_of(installation) as events:
        answer = await tenant.harebell.put(
            {"key": "literal", "when": NOW, "target": target, "retry": ONCE}
        )
        await tenant.put("kept", FAR, target)
        [received] = await until(lambda: _calls(echo, "/literal-fails"))
        dead = await dead_letter(tenant, "literal")
        runs = [row.run_id async for row in tenant.harebell.runs(key="literal")]
        shown = await outputs(installation, ["literal", "kept"], dead, runs[0])
        stored = await tables(tenant.ledger)
        places = {
            **{name: text for name, text in stored.items() if name != "table schedule_versions"},
            **await queues(installation),
            **files(installation.production.stack.services.root / "logs"),
            **shown,
            "events": b"\n".join(events),
            "answer": answer.model_dump_json().encode(),
        }

        assert (received["cookie"], received["x-api-key"]) == (bearer, key)
        assert len(answer.warnings or []) == 3
        for value in (bearer, key, password):
            assert places_with(value, places) == []
            assert places_with(value, stored) == ["table schedule_versions"]

        exported = tmp_path / "export.yaml"
        exported.write_bytes(shown["export"])
        applied = await installation.command(f"apply -f {exported} --owner sales")
        redacted = (await tenant.harebell.schedule(key="kept")).definition
        with pytest.raises(CommandRejected) as put:
            await tenant.harebell.put({**redacted, "expected_version": "any"})
        with pytest.raises(CommandRejected) as patch:
            await tenant.harebell.patch({"target": redacted["target"]}, key="kept")
        assert "redacted_value" in applied
        assert (put.value.code, put.value.field) == (
            "redacted_value",
            "target.http.headers.Cookie",
        )
        assert patch.value.code == "redacted_value"

        with pytest.raises(CommandRejected) as refused:
            await tenant.harebell.schedule(key="kept", reveal=True)
        assert (refused.value.code, refused.value.field) == ("not_allowed", "reveal")
        async with installation.tenant(OPERATOR) as operator:
            revealed = await operator.harebell.schedule(key="kept", reveal=True)
            hidden = await operator.harebell.schedule(key="kept")
    http = revealed.definition["target"]["http"]
    assert (http["url"], http["headers"]) == (target["http"]["url"], headers)
    assert bearer not in hidden.model_dump_json()


async def test_replay_edit_and_rollback_keep_literal_secrets(
    installation: Installation, echo: Echo
) -> None:
    cookie, password = (f"literal-{uuid4()}" for _ in range(2))
    address = echo.url.replace("http://", f"http://shop:{password}@")
    headers = {"X-Plain": "plain", "Cookie": cookie}
    target = {"http": {"url": f"{address}/again-fails", "headers": headers}}
    async with installation.tenant() as tenant:
        await tenant.put("again", NOW, target, retry=ONCE)
        await tenant.put("rolled", FAR, target)
        dead = await dead_letter(tenant, "again")
        await tenant.harebell.replay([dead])
        await until(lambda: _calls(echo, "/again-fails", number=2))
        again = await until(lambda: _open_dead_letter(tenant, "again"))
        edited = await installation.command(
            f"dlq edit {again} --set http.headers.X-Plain=edited -o json"
        )
        await until(lambda: _replayed(tenant, "again"))
        calls = await until(lambda: _calls(echo, "/again-fails", number=3))
        assert [each["cookie"] for each in calls] == [cookie] * 3
        assert [each["x-plain"] for each in calls] == ["plain", "plain", "edited"]
        assert len({each["authorization"] for each in calls}) == 1
        assert cookie not in edited

        await tenant.harebell.patch({"name": "newer"}, key="rolled")
        rolled_back = await installation.command("schedule rollback rolled 1")
        assert "stay" in rolled_back
        async with installation.tenant(OPERATOR) as operator:
            revealed = await operator.harebell.schedule(key="rolled", reveal=True)
    http = revealed.definition["target"]["http"]
    assert (revealed.version, "name" in revealed.definition) == (3, False)
    assert (http["url"], http["headers"]) == (target["http"]["url"], headers)


async def _calls(echo: Echo, path: str, number: int = 1) -> list[dict[str, str]]:
    calls = echo.headers[path]
    return calls if len(calls) >= number else []


async def _open_dead_letter(tenant: Tenant, key: str) -> UUID | None:
    rows = [row async for row in tenant.harebell.dead_letters(key=key)]
    return rows[0].id if rows else None


async def _replayed(tenant: Tenant, key: str) -> bool:
    """Replay the edited copy when it is the only open dead letter."""
    rows = [row async for row in tenant.harebell.dead_letters(key=key)]
    if not rows:
        return False
    response = await tenant.harebell.replay([rows[0].id])
    return "replayed" in response.results.values()


async def test_policy_refuses_literal_secrets_and_accepts_references(
    installation: Installation,
) -> None:
    call = {"url": "https://shop.example/hook"}
    reference = {"http": {**call, "headers": {"Cookie": {"secret": "cookie"}}}}
    literal = {"http": {**call, "headers": {"Cookie": "literal"}}}
    async with installation.production.client("strict") as harebell:
        accepted = await harebell.put({"key": "strict", "when": FAR, "target": reference})
        with pytest.raises(CommandRejected) as put:
            await harebell.put({"key": "other", "when": FAR, "target": literal})
        with pytest.raises(CommandRejected) as patch:
            await harebell.patch({"target": literal}, key="strict")

    assert accepted.warnings is None
    for refused, field_ in ((put, "target"), (patch, "set.target")):
        assert refused.value.code == "not_allowed"
        assert refused.value.field == f"{field_}.http.headers.Cookie"
