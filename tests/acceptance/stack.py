"""A running stack for tests, with a separate virtual host and a separate database.

`Stack` starts, stops and kills services.
`Tenant` sends the commands of one test and reads the ledger.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
from tests.rig.command_line import caller_environment
from tests.rig.fork_server import start_copy
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.servers import Servers, as_role

from harebell.client import Client
from harebell.contract.ids import RunKey
from harebell.dev.local_services import LocalServices, StartedService
from harebell.dev.plan import ServiceCounts, ServiceKind
from harebell.dev.spawn import StartProcess

DELAY_QUEUE_PREFIX = "harebell.delay."


def now() -> datetime:
    return datetime.now(UTC)


def time_in(seconds: float) -> datetime:
    """Return the time in `seconds` from now, cut to milliseconds like each scheduled time."""
    time = now() + timedelta(seconds=seconds)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


@dataclass(kw_only=True)
class Stack:
    """A stack on a separate virtual host and a separate database."""

    servers: Servers
    amqp_url: str
    database_url: str  # as its owner
    services: LocalServices

    @classmethod
    @contextmanager
    def open(
        cls,
        servers: Servers,
        root: Path,
        vhost: str | None = None,
        *,
        start: StartProcess = start_copy,
    ) -> Iterator["Stack"]:
        """Yield a stack without a running service, for fixtures that are not async.

        `start` starts the process of a service: a measurement needs `start_process`.
        """
        with servers.virtual_host(vhost) as amqp_url:
            database_url = asyncio.run(servers.make_database())
            services = LocalServices(
                root,
                amqp_url=amqp_url,
                database_url=database_url,
                environ=caller_environment(),
                start=start,
            )
            try:
                yield cls(
                    servers=servers,
                    amqp_url=amqp_url,
                    database_url=database_url,
                    services=services,
                )
            finally:
                services.close()
                asyncio.run(servers.drop_database(database_url))

    def start(
        self, counts: ServiceCounts | None = None, **environment: str
    ) -> list[StartedService]:
        """Start one instance of each service or the numbers in `counts`, until all are ready."""
        members = (counts or ServiceCounts()).members()
        started = [
            self.start_one(kind, number, ready=False, **environment) for kind, number in members
        ]
        plans = [self.services.plan(kind, number) for kind, number in members]
        living = [self.services.process(member.name) for member in started]
        self.services.processes.await_ready(
            plans,
            cannot_get_ready=lambda: any(each is None or not each.is_running for each in living),
        )
        return started

    def start_one(
        self, kind: ServiceKind, number: int = 1, *, ready: bool = True, **environment: str
    ) -> StartedService:
        """Start one instance. `environment` replaces the defaults: `HAREBELL_HORIZON="10s"`.

        Breakers are off by default, because tests share a target and a failure in one test
        would defer the runs of the others.
        """
        variables = {
            "HAREBELL_DATABASE_URL": as_role(self.database_url, kind),
            "HAREBELL_BREAKER_MODE": "manual",
            "HAREBELL_TESTING": "1",  # some tests set a failpoint
        } | environment
        return self.services.start(kind, number, environment=variables, ready=ready)

    def kill(self, name: str) -> None:
        """Kill an instance with SIGKILL: `kill("executor-1")`."""
        self.services.kill(name)

    def stop(self, *names: str) -> None:
        """Stop the named instances with SIGTERM, or all instances without a name."""
        self.services.stop(*names)

    def log_of(self, name: str) -> str:
        return (self.services.root / "logs" / f"{name}.log").read_text()

    def log_tails(self, lines: int) -> Iterator[tuple[str, str]]:
        """Yield the name and the last log lines of each service that has run."""
        for file in sorted((self.services.root / "logs").glob("*.log")):
            yield file.stem, "\n".join(file.read_text().splitlines()[-lines:])

    def delay_queue_depths(self) -> dict[str, int]:
        """Return the number of messages in each delay queue with messages.

        The numbers of the management API are some seconds old.
        """
        host = quote(urlsplit(self.amqp_url).path.removeprefix("/") or "/", safe="")
        queues = self.servers.management("GET", f"queues/{host}")
        counts = {queue["name"]: queue.get("messages", 0) for queue in queues}
        return {
            name: count
            for name, count in counts.items()
            if count and name.startswith(DELAY_QUEUE_PREFIX)
        }

    @asynccontextmanager
    async def tenant(self, name: str) -> AsyncIterator["Tenant"]:
        ledger = await asyncpg.connect(self.database_url)
        try:
            async with Client.connect(self.amqp_url, tenant=name, timeout=WAIT_TIMEOUT) as harebell:
                yield Tenant(name=name, stack=self, harebell=harebell, ledger=ledger)
        finally:
            await ledger.close()


@dataclass(kw_only=True)
class Tenant:
    """A user of a running stack and a reader of the ledger, separate for each test."""

    name: str
    stack: Stack
    harebell: Client
    ledger: asyncpg.Connection  # as the database's owner

    async def runs(self, state: str | None = None) -> list[asyncpg.Record]:
        """Return the rows of this tenant, in the order of their scheduled times."""
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
        self, count: int, state: str | None = None, *, within: float = WAIT_TIMEOUT
    ) -> list[asyncpg.Record]:
        """Return the rows of this tenant in that state after their number reaches `count`."""

        async def enough() -> bool:
            return len(await self.runs(state)) >= count

        try:
            await until(enough, within=within, what=f"{count} runs {state or ''}")
        except AssertionError as error:
            raise AssertionError(f"{error}; they are {await self.states()}") from None
        return await self.runs(state)

    async def states(self) -> dict[tuple[str, int, int], int]:
        """Return the number of runs for each state, sequence number and attempt."""
        return Counter((run["state"], run["seq"], run["attempt"]) for run in await self.runs())

    async def put(
        self, key: str, when: Mapping[str, Any], target: Mapping[str, Any], **more: Any
    ) -> str:
        """Put a schedule and return its id. `more` contains other fields of the schedule."""
        response = await self.harebell.put({"key": key, "when": when, "target": target, **more})
        return str(response.id)


def run_id(schedule_id: str, scheduled_for: datetime) -> str:
    """Return the documented id of a run, without Harebell: `<schedule id>@20261120T140000000Z`."""
    return f"{schedule_id}@{scheduled_for:%Y%m%dT%H%M%S}{scheduled_for.microsecond // 1000:03d}Z"
