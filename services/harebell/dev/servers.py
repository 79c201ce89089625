"""A private RabbitMQ and a private PostgreSQL in one folder."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

from harebell.dev.os_user import can_reach, unprivileged_user
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import choose_ports
from harebell.dev.postgres import Database
from harebell.dev.rabbitmq import Broker, BrokerPorts, ServerCommand, installed_server
from harebell.dev.state import State, load_state, save_state

BROKER_PORTS = [field.name for field in fields(BrokerPorts)]
EPMD_PORT = "epmd"
DATABASE_PORT = "postgres"
PORTS = [*BROKER_PORTS, DATABASE_PORT]

# The parent of the database folder if the user of PostgreSQL cannot enter the stack folder.
FALLBACK_DIRECTORY = Path("/var/lib")


class PrivateServers:
    """A private broker and a private database, which a later object for the same folder finds.

    `start` and `stop` work in any state. The data remains until `discard`. `broker_command` returns
    the command of the broker, see `Broker`.
    """

    def __init__(self, root: Path, *, broker_command: ServerCommand = installed_server) -> None:
        self.root = root.absolute()
        self._broker_command = broker_command
        saved = load_state(self.root)
        missing = [name for name in PORTS if name not in saved.ports]
        self._build(self._with_ports(saved, missing))

    @property
    def amqp_url(self) -> str:
        return self.broker.amqp_url

    @property
    def management_url(self) -> str:
        return self.broker.management_url

    @property
    def database_url(self) -> str:
        return self.database.database_url

    @property
    def daemons(self) -> tuple[BackgroundProcess, ...]:
        return (*self.broker.daemons, *self.database.daemons)

    def start(self, *, broker: bool = True, database: bool = True) -> None:
        """Start the selected servers and wait until they are ready."""
        self._prepare(select_directory=database)
        steps: list[Callable[[], None]] = []
        if broker:
            steps.append(self.broker.start)
        if database:
            steps.append(self.database.start)
        run_concurrently(steps)

    def stop(self) -> None:
        """Stop both servers and keep their data."""
        run_concurrently([self.broker.stop, self.database.stop])

    def discard(self) -> None:
        """Kill both servers and delete their data."""
        run_concurrently([self.broker.discard, self.database.discard])

    def _build(self, saved: State) -> None:
        self._state = saved
        ports = saved.ports
        self.broker = Broker(
            self.root,
            ports=BrokerPorts(**{name: ports[name] for name in BROKER_PORTS}),
            password=saved.password,
            command=self._broker_command,
        )
        self.database = Database(
            self.root,
            saved.database_directory or self.root / "postgres",
            port=ports[DATABASE_PORT],
            password=saved.password,
        )

    def _with_ports(self, saved: State, names: Iterable[str]) -> State:
        chosen = choose_ports(names, seed=str(self.root), remembered=saved.ports)
        return saved.model_copy(update={"ports": saved.ports | chosen})

    def _prepare(self, *, select_directory: bool) -> None:
        """Replace ports that are in use, select the database folder, and save the state.

        A running server keeps its ports.
        """
        idle = set(PORTS)
        if self.broker.running:
            idle -= {*BROKER_PORTS} - {EPMD_PORT}
        if self.broker.epmd_running:
            idle -= {EPMD_PORT}
        if self.database.running:
            idle -= {DATABASE_PORT}
        state = self._with_ports(self._state, [name for name in PORTS if name in idle])
        if select_directory and state.database_directory is None:
            directory = _database_directory(self.root)
            state = state.model_copy(update={"database_directory": directory})
        save_state(self.root, state)
        self._build(state)


def _database_directory(root: Path) -> Path:
    """Return a folder that the user of PostgreSQL can enter, in the stack folder if possible."""
    user = unprivileged_user()
    home = root / "postgres"
    _create_accessible(home)
    if not can_reach(user, home):
        home.rmdir()
        home = (
            FALLBACK_DIRECTORY / f"harebell-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        )
        _create_accessible(home)
    return home


def _create_accessible(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)  # under any umask


def run_concurrently(steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps in threads, wait for all, then raise the first error."""
    with ThreadPoolExecutor(max_workers=max(len(steps), 1)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()
