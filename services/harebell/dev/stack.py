"""Bringing a database to the newest schema, with logins for the services' roles."""

import asyncio
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harebell.dev.errors import NotReady, StartFailed
from harebell.dev.local_services import LocalServices
from harebell.dev.logs import tail
from harebell.dev.pid_file import TAIL_LINES, BackgroundProcess
from harebell.dev.plan import Command, Counts, StackPlan, module_command
from harebell.dev.processes import ServiceProcesses, is_ready
from harebell.dev.servers import PrivateServers
from harebell.dev.spawn import Process
from harebell.dev.state import PLAN_FILE, STATE_FILE, load_plan, save_plan
from harebell.dev.status import ProcessReport, ServerReport, StackStatus


def migrate(database_url: str) -> None:
    """Blocks, so from a coroutine call it in a thread. The roles get the password of the URL."""
    # Imported only when used: alembic is slow to load, and `status` and `logs` do without it.
    from harebell.storage.migrate import migrate as to_newest  # noqa: PLC0415

    asyncio.run(to_newest(database_url, role_password=urlsplit(database_url).password))


DEFAULT_ROOT = Path(".harebell")
STOP_S = 20.0  # the supervisor gives its services 10 s, then kills them
AMQP_SETTING = "HAREBELL_AMQP_URL"
DATABASE_SETTING = "HAREBELL_DATABASE_URL"
LOCK_FILE = "lock"
OURS = ("logs", "run", PLAN_FILE, STATE_FILE, LOCK_FILE)


class Stack:
    """`start`, `stop` and `status` may be called by any process, in any state, in any order.

    `say` is told what a person should know and the result does not show.
    """

    def __init__(
        self,
        root: Path = DEFAULT_ROOT,
        *,
        say: Callable[[str], None] = lambda _: None,
        caller: Mapping[str, str] | None = None,
        command: Command = module_command,
        prepare: Callable[[str], None] = migrate,
    ) -> None:
        self.root = root.absolute()
        self.crew = ServiceProcesses(self.root)
        self._supervisor = BackgroundProcess("supervisor", self.root)
        self._say = say
        self._caller = os.environ if caller is None else caller
        self._command = command
        self._prepare = prepare

    def start(self, counts: Counts | None = None, *, restart: bool = True) -> StackStatus:
        """Start what is not running and return when every service is ready.

        A stack that already runs keeps its numbers; a server that it lost is started again.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with self._alone():
            servers = self._start_servers()
            plan = load_plan(self.root)
            if plan is not None and self._runs(plan, servers):
                self._say(f"already running: {', '.join(each.name for each in plan.services)}")
            else:
                self._clear_up()
                plan = self._plan(servers, counts or Counts(), restart=restart)
                self._prepare(plan.database_url)
                self._supervise(plan)
            self._await_ready(plan)
            return self._report(plan, servers)

    def stop(self, *, wipe: bool = False) -> bool:
        """Leave no process; keep the data, or delete it. False: there was nothing to stop."""
        if not self.root.exists():
            return False
        with self._alone():
            servers = PrivateServers(self.root)
            daemons = (self._supervisor, *servers.daemons)
            running = any(each.process for each in daemons) or bool(self.crew.processes())
            self._supervisor.stop(grace=STOP_S)
            self.crew.stop()
            servers.stop()
            if wipe:
                servers.discard()
                self._forget()
        return running

    def status(self) -> StackStatus | None:
        """How everything is now; None when nothing was ever started here."""
        plan = load_plan(self.root)
        return None if plan is None else self._report(plan, PrivateServers(self.root))

    def _start_servers(self) -> PrivateServers:
        """Start those that were not given to us."""
        servers = PrivateServers(self.root)
        ours = not self._caller.get(DATABASE_SETTING)
        servers.start(broker=not self._caller.get(AMQP_SETTING), database=ours)
        place = servers.database.directory
        if ours and not place.is_relative_to(self.root):
            self._say(f"PostgreSQL runs as another account; its data is in {place}")
        return servers

    def _urls(self, servers: PrivateServers) -> tuple[str, str]:
        return (
            self._caller.get(AMQP_SETTING) or servers.amqp_url,
            self._caller.get(DATABASE_SETTING) or servers.database_url,
        )

    def _runs(self, plan: StackPlan, servers: PrivateServers) -> bool:
        """Whether this plan is supervised, and on the servers of now."""
        supervised = self._supervisor.process is not None
        return supervised and (plan.amqp_url, plan.database_url) == self._urls(servers)

    def _clear_up(self) -> None:
        """Stop services that a crash, or a stack on other servers, has left."""
        self._supervisor.stop(grace=STOP_S)
        left = self.crew.stop()
        if left:
            self._say(f"stopped what was left running: {', '.join(left)}")

    def _plan(self, servers: PrivateServers, counts: Counts, *, restart: bool) -> StackPlan:
        amqp_url, database_url = self._urls(servers)
        before = load_plan(self.root)
        services = LocalServices(
            self.root,
            amqp_url=amqp_url,
            database_url=database_url,
            command=self._command,
            caller=self._caller,
            ports={each.name: each.port for each in before.services} if before else {},
        )
        return StackPlan(
            amqp_url=amqp_url,
            database_url=database_url,
            management_url=servers.management_url if amqp_url == servers.amqp_url else None,
            restart=restart,
            services=tuple(services.plan(kind, number) for kind, number in counts.members()),
        )

    def _supervise(self, plan: StackPlan) -> None:
        save_plan(self.root, plan)
        self._supervisor.start(
            [sys.executable, "-m", "harebell.dev.supervisor", "--root", str(self.root)],
            environment=self._caller,
            directory=self.root,
        )

    def _await_ready(self, plan: StackPlan) -> None:
        try:
            self.crew.await_ready(plan.services, hopeless=lambda: self._given_up(plan))
        except NotReady:
            if self._supervisor.process is None:
                log = tail(self._supervisor.log, TAIL_LINES)
                raise StartFailed(self._supervisor.name, "ended", log) from None
            raise

    def _given_up(self, plan: StackPlan) -> bool:
        ended = any(self.crew.ended(service.name) for service in plan.services)
        return self._supervisor.process is None or (ended and not plan.restart)

    def _report(self, plan: StackPlan, servers: PrivateServers) -> StackStatus:
        daemons = [self._supervisor]
        if plan.amqp_url == servers.amqp_url:
            daemons += servers.broker.daemons
        if plan.database_url == servers.database_url:
            daemons += servers.database.daemons
        living = self.crew.processes()
        planned = {service.name: service.port for service in plan.services}
        return StackStatus(
            amqp_url=plan.amqp_url,
            database_url=plan.database_url,
            management_url=plan.management_url,
            processes=tuple(
                ProcessReport(
                    name=name, pid=_pid(living.get(name)), port=port, ready=is_ready(port)
                )
                for name, port in planned.items()
            ),
            servers=tuple(
                ServerReport(name=daemon.name, pid=_pid(daemon.process)) for daemon in daemons
            ),
        )

    def _forget(self) -> None:
        """Delete our own files, and the directory if nobody else put something there."""
        for name in OURS:
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if not any(self.root.iterdir()):
            self.root.rmdir()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One start or stop at a time; the second waits, and then finds what the first left."""
        with (self.root / LOCK_FILE).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _pid(process: Process | None) -> int | None:
    return process.pid if process else None
