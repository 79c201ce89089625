"""A private PostgreSQL cluster on loopback, with the durability of production."""

import shutil
import signal
import tempfile
from pathlib import Path

from harebell.dev import state
from harebell.dev.errors import NotInstalled, StartFailed
from harebell.dev.logs import tail
from harebell.dev.os_user import unprivileged_user
from harebell.dev.pid_file import TAIL_LINES, BackgroundProcess
from harebell.dev.ports import LOOPBACK
from harebell.dev.spawn import OsUser, run

USER = "harebell"
DATABASE = "harebell"
DATA = "data"  # the folder of the cluster, inside that of the server
START_TIMEOUT = 60.0  # seconds, including the recovery after a kill
STOP_TIMEOUT = 20.0
DISCARD_TIMEOUT = 5.0  # seconds until a discarded server is killed
VERSIONS = Path("/usr/lib/postgresql")  # Debian installs the programs of major version n in n/bin
STATISTICS = "pg_stat_statements"

CONFIGURATION_FILE = "harebell.conf"  # included after the settings of initdb, which fit the machine
CONFIGURATION = """\
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = 200
shared_buffers = 256MB
max_wal_size = 4GB
fsync = on
synchronous_commit = on
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %u '
track_functions = all
shared_preload_libraries = '{preload}'
"""


class Database:
    """A private PostgreSQL cluster. The first start creates its data in `directory`."""

    def __init__(self, root: Path, directory: Path, *, port: int, password: str) -> None:
        self.directory = directory
        self.port = port
        self.password = password
        self._data = directory / DATA
        self._server = BackgroundProcess("postgres", root)

    @property
    def database_url(self) -> str:
        """The URL with the superuser of the cluster."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def daemons(self) -> tuple[BackgroundProcess, ...]:
        return (self._server,)

    @property
    def running(self) -> bool:
        return self._server.process is not None

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        if not self.running:
            programs, user = _programs(), unprivileged_user()
            if not self._data.exists():
                self._create(programs, user)
            self._configure(self._data, programs)
            self._server.start(
                [str(programs / "postgres"), "-D", str(self._data)],
                environment=_ENVIRONMENT,
                directory=self._data,
                user=user,
            )
        self._server.await_ready(self._is_ready, limit=START_TIMEOUT)

    def stop(self) -> None:
        self._server.stop(
            grace=STOP_TIMEOUT, stop_signal=signal.SIGINT
        )  # fast shutdown, which does not wait for clients

    def kill(self) -> None:
        """Kill the server and its backends with SIGKILL."""
        self._server.kill()

    def discard(self) -> None:
        """End the server at once and delete its data.

        A killed server would leave a segment of 1 MiB in the shared memory of the machine.
        """
        self._server.stop(grace=DISCARD_TIMEOUT, stop_signal=signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _create(self, programs: Path, user: OsUser | None) -> None:
        """Create the cluster in a temporary folder and rename it.

        A crash leaves no incomplete cluster.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
            if user is not None:
                shutil.chown(temporary, user.uid, user.gid)
            new_data = Path(temporary) / "data"
            secret = Path(temporary) / "password"
            state.write(secret, self.password)
            if user is not None:
                shutil.chown(secret, user.uid, user.gid)
            self._run(_initdb(programs, new_data, secret), user)
            with (new_data / "postgresql.conf").open("a", encoding="utf-8") as configuration:
                configuration.write(f"include = '{CONFIGURATION_FILE}'\n")
            self._configure(new_data, programs)
            single = [str(programs / "postgres"), "--single", "-D", str(new_data)]
            self._run([*single, "postgres"], user, f"CREATE DATABASE {DATABASE}\n")
            if _has_statistics(programs):
                self._run([*single, DATABASE], user, f"CREATE EXTENSION {STATISTICS}\n")
            new_data.rename(self._data)

    def _configure(self, data: Path, programs: Path) -> None:
        preload = STATISTICS if _has_statistics(programs) else ""
        settings = CONFIGURATION.format(host=LOOPBACK, port=self.port, preload=preload)
        path = data / CONFIGURATION_FILE
        path.write_text(settings, encoding="utf-8")
        path.chmod(0o644)  # the user of the server must read the file under any umask

    def _run(self, command: list[str], user: OsUser | None, sql: str = "") -> None:
        log = self._server.log
        log.parent.mkdir(parents=True, exist_ok=True)
        if run(command, environment=_ENVIRONMENT, user=user, input_text=sql, log=log) != 0:
            reason = f"The cluster must be created, but {Path(command[0]).name} failed."
            raise StartFailed("postgres", reason, tail(log, TAIL_LINES))

    def _is_ready(self) -> bool:
        command = [str(_programs() / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port)]
        return run(command, environment=_ENVIRONMENT) == 0


_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
}  # without the PG* variables of the caller


def _programs() -> Path:
    """Return the folder of the newest version."""
    found = [path.parent for path in VERSIONS.glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path is None:
        raise NotInstalled("postgresql", "HAREBELL_DATABASE_URL")
    return Path(on_path).parent


def _initdb(programs: Path, data: Path, password: Path) -> list[str]:
    return [
        str(programs / "initdb"),
        f"--pgdata={data}",
        f"--username={USER}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-sync",  # saves a second; later writes are synced
    ]


def _has_statistics(programs: Path) -> bool:
    return (programs.parent / "lib" / f"{STATISTICS}.so").exists()
