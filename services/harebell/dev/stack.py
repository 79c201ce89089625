"""The local stack in one folder: servers, schema, services and their supervisor."""

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
from harebell.dev.os_user import drop_privileges
from harebell.dev.pid_file import TAIL_LINES, BackgroundProcess
from harebell.dev.plan import Command, ServiceCounts, StackPlan, kept_environment, module_command
from harebell.dev.processes import ServiceProcesses, is_ready
from harebell.dev.servers import PrivateServers
from harebell.dev.spawn import KILL_TIMEOUT, Process
from harebell.dev.state import PLAN_FILE, STATE_FILE, load_plan, make_private, save_plan
from harebell.dev.status import ProcessReport, ServerReport, StackStatus


def migrate(database_url: str) -> None:
    """Migrate the database. The service roles get the password of the URL.

    The call blocks, so a coroutine calls it in a thread.
    """
    # `status` and `logs` do not need alembic.
    from harebell.storage.migrate import migrate as migrate_database  # noqa: PLC0415  # alembic loads slowly
    from harebell.storage.role_passwords import ROLES  # noqa: PLC0415  # as above

    password = urlsplit(database_url).password
    passwords = {} if password is None else dict.fromkeys(ROLES, password)
    asyncio.run(migrate_database(database_url, role_passwords=passwords))


DEFAULT_ROOT = Path(".harebell")
# Seconds beyond the stop timeout of the services, in which the supervisor kills them and ends.
SUPERVISOR_STOP_MARGIN = KILL_TIMEOUT + 5.0
AMQP_SETTING = "HAREBELL_AMQP_URL"
DATABASE_SETTING = "HAREBELL_DATABASE_URL"
LOCK_FILE = "lock"
STACK_FILES = ("logs", "run", PLAN_FILE, STATE_FILE, LOCK_FILE)


class Stack:
    """The local stack. Any process may call `start`, `stop` and `status` in any state.

    `print_message` receives messages for the user that the result does not contain.
    """

    def __init__(
        self,
        root: Path = DEFAULT_ROOT,
        *,
        print_message: Callable[[str], None] = lambda _: None,
        environ: Mapping[str, str] | None = None,
        command: Command = module_command,
        prepare: Callable[[str], None] = migrate,
    ) -> None:
        self.root = root.absolute()
        self.processes = ServiceProcesses(self.root)
        self._supervisor = BackgroundProcess("supervisor", self.root)
        self._print = print_message
        self._environ = os.environ if environ is None else environ
        self._command = command
        self._prepare = prepare

    def start(self, counts: ServiceCounts | None = None, *, restart: bool = True) -> StackStatus:
        """Start what is not running, and wait until every service is ready.

        A running stack keeps its service counts. A lost server is started again.
        """
        if not any(each.process for each in self._daemons()):
            drop_privileges(self.root, self._environ)
        make_private(self.root)
        with self._locked():
            servers = self._start_servers()
            plan = load_plan(self.root)
            if plan is not None and self._is_supervised(plan, servers):
                self._print(
                    f"These services run already: {', '.join(each.name for each in plan.services)}."
                )
            else:
                self._stop_leftovers()
                plan = self._plan(servers, counts or ServiceCounts(), restart=restart)
                self._prepare(plan.database_url)
                self._supervise(plan)
            self._await_ready(plan)
            return self._report(plan, servers)

    def stop(self, *, wipe: bool = False) -> bool:
        """Stop every process and, with `wipe`, delete the data. Return whether a process ran."""
        if not self.root.exists():
            return False
        with self._locked():
            servers = PrivateServers(self.root)
            daemons = (self._supervisor, *servers.daemons)
            running = any(each.process for each in daemons) or bool(self.processes.processes())
            self._stop_supervisor()
            self.processes.stop()
            servers.stop()
            if wipe:
                servers.discard()
                self._delete_files()
        return running

    def status(self) -> StackStatus | None:
        """Return the status, or None if the folder contains no stack."""
        plan = load_plan(self.root)
        return None if plan is None else self._report(plan, PrivateServers(self.root))

    def _daemons(self) -> tuple[BackgroundProcess, ...]:
        return (self._supervisor, *PrivateServers(self.root).daemons)

    def _start_servers(self) -> PrivateServers:
        """Start the servers for which the environ sets no URL."""
        servers = PrivateServers(self.root)
        is_private = not self._environ.get(DATABASE_SETTING)
        servers.start(broker=not self._environ.get(AMQP_SETTING), database=is_private)
        directory = servers.database.directory
        if is_private and not directory.is_relative_to(self.root):
            self._print(f"PostgreSQL runs as another user, and its data is in {directory}.")
        return servers

    def _urls(self, servers: PrivateServers) -> tuple[str, str]:
        return (
            self._environ.get(AMQP_SETTING) or servers.amqp_url,
            self._environ.get(DATABASE_SETTING) or servers.database_url,
        )

    def _is_supervised(self, plan: StackPlan, servers: PrivateServers) -> bool:
        """Return whether the plan runs on the current servers."""
        has_supervisor = self._supervisor.process is not None
        return has_supervisor and (plan.amqp_url, plan.database_url) == self._urls(servers)

    def _stop_leftovers(self) -> None:
        """Stop the services of a crashed stack, or of a stack on other servers."""
        self._stop_supervisor()
        left = self.processes.stop()
        if left:
            self._print(f"These services of an earlier stack were stopped: {', '.join(left)}.")

    def _stop_supervisor(self) -> None:
        """Stop the supervisor, which waits until the attempts of each executor have ended."""
        self._supervisor.stop(grace=self.processes.stop_timeout() + SUPERVISOR_STOP_MARGIN)

    def _plan(self, servers: PrivateServers, counts: ServiceCounts, *, restart: bool) -> StackPlan:
        amqp_url, database_url = self._urls(servers)
        before = load_plan(self.root)
        services = LocalServices(
            self.root,
            amqp_url=amqp_url,
            database_url=database_url,
            command=self._command,
            environ=self._environ,
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
            environment=kept_environment(self._environ),
            directory=self.root,
        )

    def _await_ready(self, plan: StackPlan) -> None:
        try:
            self.processes.await_ready(
                plan.services, cannot_get_ready=lambda: self._cannot_get_ready(plan)
            )
        except NotReady:
            if self._supervisor.process is None:
                log = tail(self._supervisor.log, TAIL_LINES)
                raise StartFailed(
                    self._supervisor.name, "The supervisor ended during the start.", log
                ) from None
            raise

    def _cannot_get_ready(self, plan: StackPlan) -> bool:
        ended = any(self.processes.has_ended(service.name) for service in plan.services)
        return self._supervisor.process is None or (ended and not plan.restart)

    def _report(self, plan: StackPlan, servers: PrivateServers) -> StackStatus:
        daemons = [self._supervisor]
        if plan.amqp_url == servers.amqp_url:
            daemons += servers.broker.daemons
        if plan.database_url == servers.database_url:
            daemons += servers.database.daemons
        living = self.processes.processes()
        planned = {service.name: service.port for service in plan.services}
        return StackStatus(
            amqp_url=plan.amqp_url,
            database_url=plan.database_url,
            management_url=plan.management_url,
            identity=plan.identity,
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

    def _delete_files(self) -> None:
        """Delete the files of the stack, and the folder if it is empty then."""
        for name in STACK_FILES:
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if not any(self.root.iterdir()):
            self.root.rmdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one start or stop run at a time."""
        with (self.root / LOCK_FILE).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _pid(process: Process | None) -> int | None:
    return process.pid if process else None
