"""A running stack for tests, on a virtual host and a database of its own, and what is done to it.

`Stack` is plain: it starts, kills and stops services. `Tenant` is what one test does through it.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import asyncpg
from tests.rig.servers import Servers, as_role

from harebell.client import Client
from harebell.contract.ids import RunKey
from harebell.dev.local_services import LocalServices, Member
from harebell.dev.plan import Counts, ServiceKind

PATIENCE = 30.0  # seconds; for what takes a moment on an idle machine
LOOK = 0.05  # seconds between two looks at what tells nothing by itself
TIERS = "harebell.delay."

T = TypeVar("T")


async def until(
    condition: Callable[[], Awaitable[T]], *, within: float = PATIENCE, what: str = "it"
) -> T:
    """The first answer that counts as true."""
    answer = await condition()
    try:
        async with asyncio.timeout(within):
            while not answer:
                await asyncio.sleep(LOOK)
                answer = await condition()
    except TimeoutError:
        raise AssertionError(f"{what} did not come about within {within:g} s: {answer}") from None
    return answer


def now() -> datetime:
    return datetime.now(UTC)


def instant(seconds: float) -> datetime:
    """So far from now, in whole milliseconds, as instants of runs are."""
    moment = now() + timedelta(seconds=seconds)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@dataclass
class Stack:
    servers: Servers
    amqp_url: str
    database_url: str  # as its owner
    services: LocalServices

    @classmethod
    @contextmanager
    def open(cls, servers: Servers, root: Path, vhost: str | None = None) -> Iterator["Stack"]:
        """Nothing runs yet. For fixtures that are not async."""
        with servers.virtual_host(vhost) as amqp_url:
            database_url = asyncio.run(servers.make_database())
            services = LocalServices(
                root, amqp_url=amqp_url, database_url=database_url, caller=_environment()
            )
            try:
                yield cls(servers, amqp_url, database_url, services)
            finally:
                services.stop()
                asyncio.run(servers.drop_database(database_url))

    def start(self, counts: Counts | None = None, **environment: str) -> list[Member]:
        """One of each, or as many as `counts` says; returns when all are ready."""
        members = (counts or Counts()).members()
        started = [
            self.start_one(kind, number, ready=False, **environment) for kind, number in members
        ]
        plans = [self.services.plan(kind, number) for kind, number in members]
        living = [self.services.process(member.name) for member in started]
        self.services.crew.await_ready(
            plans, hopeless=lambda: any(each is None or not each.alive for each in living)
        )
        return started

    def start_one(
        self, kind: ServiceKind, number: int = 1, *, ready: bool = True, **environment: str
    ) -> Member:
        """`environment` has the last word: `HAREBELL_HORIZON="10s"`.

        Tests share one target: what fails in one of them must hold back no other's runs.
        """
        mine = {
            "HAREBELL_DATABASE_URL": as_role(self.database_url, kind),
            "HAREBELL_BREAKER_MODE": "manual",
        } | environment
        return self.services.start(kind, number, environment=mine, ready=ready)

    def kill(self, name: str) -> None:
        """Outright (-9): `kill("executor-1")`."""
        self.services.kill(name)

    def stop(self, *names: str) -> None:
        """In good order; all when none is named."""
        self.services.stop(*names)

    def log_of(self, name: str) -> str:
        return (self.services.root / "logs" / f"{name}.log").read_text()

    def last_said(self, lines: int) -> Iterator[tuple[str, str]]:
        """Of each service that ever ran: its name, and the end of what it logged."""
        for file in sorted((self.services.root / "logs").glob("*.log")):
            yield file.stem, "\n".join(file.read_text().splitlines()[-lines:])

    def waiting_in_tiers(self) -> dict[str, int]:
        """Messages by tier, as the management API has them: some seconds old."""
        host = quote(urlsplit(self.amqp_url).path.removeprefix("/") or "/", safe="")
        queues = self.servers.management("GET", f"queues/{host}")
        counts = {queue["name"]: queue.get("messages", 0) for queue in queues}
        return {name: count for name, count in counts.items() if count and name.startswith(TIERS)}

    @asynccontextmanager
    async def tenant(self, name: str) -> AsyncIterator["Tenant"]:
        ledger = await asyncpg.connect(self.database_url)
        try:
            async with Client.connect(self.amqp_url, tenant=name, timeout=PATIENCE) as harebell:
                yield Tenant(name, self, harebell, ledger)
        finally:
            await ledger.close()


@dataclass
class Tenant:
    """A user of a running stack, and a reader of the ledger. Every test has one of its own."""

    name: str
    stack: Stack
    harebell: Client
    ledger: asyncpg.Connection  # as the database's owner

    async def runs(self, state: str | None = None) -> list[asyncpg.Record]:
        """The rows of this tenant, in the order of their instants."""
        rows: list[asyncpg.Record] = await self.ledger.fetch(
            "SELECT * FROM runs WHERE tenant = $1 AND state = coalesce($2, state) "
            "ORDER BY scheduled_for, schedule_id",
            self.name,
            state,
        )
        return rows

    async def run(self, run_id: str) -> asyncpg.Record:
        key = RunKey.parse(run_id)
        row = await self.ledger.fetchrow(
            "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2",
            key.scheduled_for,
            key.schedule_id,
        )
        assert row is not None, f"no row of {run_id}"
        return row

    async def attempts(self, run_id: str) -> list[asyncpg.Record]:
        key = RunKey.parse(run_id)
        rows: list[asyncpg.Record] = await self.ledger.fetch(
            "SELECT * FROM attempts WHERE scheduled_for = $1 AND schedule_id = $2 "
            "ORDER BY replay_number, number",
            key.scheduled_for,
            key.schedule_id,
        )
        return rows

    async def until_runs(
        self, count: int, state: str | None = None, *, within: float = PATIENCE
    ) -> list[asyncpg.Record]:
        """This tenant's rows, once so many are in that state."""

        async def enough() -> bool:
            return len(await self.runs(state)) >= count

        try:
            await until(enough, within=within, what=f"{count} runs {state or ''}")
        except AssertionError as error:
            raise AssertionError(f"{error}; they are {await self.states()}") from None
        return await self.runs(state)

    async def states(self) -> dict[tuple[str, int, int], int]:
        """How many runs are in each state, of which sequence number and attempt."""
        return Counter((run["state"], run["seq"], run["attempt"]) for run in await self.runs())

    async def put(
        self, key: str, when: Mapping[str, Any], target: Mapping[str, Any], **more: Any
    ) -> str:
        """The id of the schedule; `more`: any other field of it."""
        answer = await self.harebell.put({"key": key, "when": when, "target": target, **more})
        return str(answer.id)


def run_id(schedule_id: str, scheduled_for: datetime) -> str:
    """As Harebell names it, written by hand: `<schedule id>@20261120T140000000Z`."""
    return f"{schedule_id}@{scheduled_for:%Y%m%dT%H%M%S}{scheduled_for.microsecond // 1000:03d}Z"


def _environment() -> dict[str, str]:
    """The caller's, without what it says about another stack; a bare checkout's paths."""
    mine = {name: text for name, text in os.environ.items() if not name.startswith("HAREBELL_")}
    return mine | {"PYTHONPATH": os.pathsep.join(sys.path)}
