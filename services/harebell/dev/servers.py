"""The private RabbitMQ and PostgreSQL together, under one directory: what tests start and kill."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

from harebell.dev.os_user import can_reach, unprivileged
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import choose
from harebell.dev.postgres import Database
from harebell.dev.rabbitmq import Broker, BrokerPorts
from harebell.dev.state import State, load_state, save_state

BROKER_PORTS = [field.name for field in fields(BrokerPorts)]
EPMD_PORT = "epmd"
DATABASE_PORT = "postgres"
PORTS = [*BROKER_PORTS, DATABASE_PORT]

# Where the database goes when the account it runs as cannot enter the stack's own directory.
ELSEWHERE = Path("/var/lib")


class PrivateServers:
    """A broker and a database of our own. They outlive this object; a second one finds them again.

    `start` and `stop` may be called in any state. Data is kept until `discard`. `release` is the
    broker's, as in `dev/releases.py`; without one it is the installed one.
    """

    def __init__(self, root: Path, *, release: str | None = None) -> None:
        self.root = root.absolute()
        self._release = release
        remembered = load_state(self.root)
        missing = [name for name in PORTS if name not in remembered.ports]
        self._build(self._with_ports(remembered, missing))

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
        """Start what is wanted and not running yet; return when it answers."""
        self._settle(place_database=database)
        wanted: list[Callable[[], None]] = []
        if broker:
            wanted.append(self.broker.start)
        if database:
            wanted.append(self.database.start)
        together(wanted)

    def stop(self) -> None:
        """Stop both in good order; no process is left, the data is."""
        together([self.broker.stop, self.database.stop])

    def discard(self) -> None:
        """Kill both and delete their data: the quick way out for tests."""
        together([self.broker.discard, self.database.discard])

    def _build(self, remembered: State) -> None:
        self._state = remembered
        ports = remembered.ports
        self.broker = Broker(
            self.root,
            ports=BrokerPorts(**{name: ports[name] for name in BROKER_PORTS}),
            password=remembered.password,
            release=self._release,
        )
        self.database = Database(
            self.root,
            remembered.database_directory or self.root / "postgres",
            port=ports[DATABASE_PORT],
            password=remembered.password,
        )

    def _with_ports(self, remembered: State, names: Iterable[str]) -> State:
        chosen = choose(names, seed=str(self.root), remembered=remembered.ports)
        return remembered.model_copy(update={"ports": remembered.ports | chosen})

    def _settle(self, *, place_database: bool) -> None:
        """Decide anew, and remember, what may have changed since: taken ports, a reachable place.

        What runs keeps its ports: they are taken by itself.
        """
        idle = set(PORTS)
        if self.broker.running:
            idle -= {*BROKER_PORTS} - {EPMD_PORT}
        if self.broker.epmd_running:
            idle -= {EPMD_PORT}
        if self.database.running:
            idle -= {DATABASE_PORT}
        settled = self._with_ports(self._state, [name for name in PORTS if name in idle])
        if place_database and settled.database_directory is None:
            place = _database_place(self.root)
            settled = settled.model_copy(update={"database_directory": place})
        save_state(self.root, settled)
        self._build(settled)


def _database_place(root: Path) -> Path:
    """Under the stack's directory, unless the account that PostgreSQL runs as cannot go there."""
    account = unprivileged()
    home = root / "postgres"
    _make_open(home)
    if not can_reach(account, home):
        home.rmdir()
        home = ELSEWHERE / f"harebell-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        _make_open(home)
    return home


def _make_open(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)  # whatever the umask


def together(steps: Sequence[Callable[[], None]]) -> None:
    """Do all at once, to the end, then raise what the first failed one raised."""
    with ThreadPoolExecutor(max_workers=max(len(steps), 1)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()
