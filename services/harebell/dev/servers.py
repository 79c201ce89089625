"""A private RabbitMQ and a private PostgreSQL in one folder."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from itertools import count
from pathlib import Path

from harebell.dev.errors import StartFailed
from harebell.dev.os_user import can_reach, unprivileged_user
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import choose_ports
from harebell.dev.postgres import DATA, Database
from harebell.dev.rabbitmq import Broker, BrokerPorts, ServerCommand, installed_server
from harebell.dev.spawn import OsUser
from harebell.dev.state import FOLDER_MODE, State, load_state, save_state

BROKER_PORTS = [field.name for field in fields(BrokerPorts)]
EPMD_PORT = "epmd"
DATABASE_PORT = "postgres"
PORTS = [*BROKER_PORTS, DATABASE_PORT]

# The parent of the database folder if the user of PostgreSQL cannot enter the stack folder.
FALLBACK_DIRECTORY = Path("/var/lib")


class PrivateServers:
    """A private broker and a private database, which a later object for the same folder finds.

    `start` and `stop` work in any state, and data remain until `discard`. `broker_command` returns
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
        saved = self._with_ports(self._state, [name for name in PORTS if name in idle])
        if select_directory and not self.database.running:
            directory = _database_directory(self.root, saved.database_directory)
            saved = saved.model_copy(update={"database_directory": directory})
        save_state(self.root, saved)
        self._build(saved)


def _database_directory(root: Path, known: Path | None) -> Path:
    """Return a folder that the user of PostgreSQL can enter, in the stack folder if possible.

    The data of an earlier version may be in a stack folder that other users could enter. They move
    to the new folder.
    """
    user = unprivileged_user()
    if known is not None and can_reach(user, known):
        _make_private(known, user)
        return known
    directory = _new_database_directory(root, user)
    if known is None and _has_data(directory):
        _set_aside(directory / DATA)
    if known is not None and known != directory and _has_data(known):
        shutil.move(known / DATA, directory / DATA)
        _give(directory, user)
    return directory


def _set_aside(data: Path) -> None:
    """Rename data whose password was in a stack folder that somebody has deleted."""
    names = (data.with_name(f"{data.name}.{number}") for number in count(1))
    data.rename(next(name for name in names if not name.exists()))


def _has_data(directory: Path) -> bool:
    try:
        return (directory / DATA).exists()
    except PermissionError:
        reason = f"The folder {directory} must belong to the caller, but is that of another user."
        raise StartFailed("postgres", reason, "") from None


def _new_database_directory(root: Path, user: OsUser | None) -> Path:
    home = root / "postgres"
    _make_private(home, user)
    if not can_reach(user, home):
        home.rmdir()
        home = (
            FALLBACK_DIRECTORY / f"harebell-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        )
        _make_private(home, user)
    return home


def _make_private(directory: Path, user: OsUser | None) -> None:
    """Make a folder that only the user of PostgreSQL can enter, besides root."""
    directory.mkdir(parents=True, exist_ok=True)
    if user is not None:
        os.chown(directory, user.uid, user.gid)
    directory.chmod(FOLDER_MODE)


def _give(directory: Path, user: OsUser | None) -> None:
    """Give a folder and its content to the user. A copy between file systems belongs to root."""
    if user is not None:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)


def run_concurrently(steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps in threads, wait for all, then raise the first error."""
    with ThreadPoolExecutor(max_workers=max(len(steps), 1)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()
