"""A private PostgreSQL cluster on loopback, durable as in production."""

import shutil
import signal
import tempfile
from pathlib import Path

from harebell.dev import state
from harebell.dev.errors import NotInstalled, StartFailed
from harebell.dev.logs import tail
from harebell.dev.os_user import unprivileged
from harebell.dev.pid_file import TAIL_LINES, BackgroundProcess
from harebell.dev.ports import LOOPBACK
from harebell.dev.spawn import Account, run

USER = "harebell"
DATABASE = "harebell"
START_S = 60.0  # includes recovery after a kill
STOP_S = 20.0
VERSIONS = Path("/usr/lib/postgresql")  # Debian keeps each major version's programs in <n>/bin
STATISTICS = "pg_stat_statements"

OURS = "harebell.conf"  # initdb's own settings fit the machine and stay; these come after them
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
    """A PostgreSQL cluster of our own. Its data is made in `directory` on the first start."""

    def __init__(self, root: Path, directory: Path, *, port: int, password: str) -> None:
        self.directory = directory
        self.port = port
        self.password = password
        self._data = directory / "data"
        self._server = BackgroundProcess("postgres", root)

    @property
    def database_url(self) -> str:
        """As the cluster's superuser."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def daemons(self) -> tuple[BackgroundProcess, ...]:
        return (self._server,)

    @property
    def running(self) -> bool:
        return self._server.process is not None

    def start(self) -> None:
        """Return when it accepts connections."""
        if not self.running:
            programs, account = _programs(), unprivileged()
            if not self._data.exists():
                self._create(programs, account)
            self._configure(self._data, programs)
            self._server.start(
                [str(programs / "postgres"), "-D", str(self._data)],
                environment=_ENVIRONMENT,
                directory=self._data,
                account=account,
            )
        self._server.await_ready(self._accepts, limit=START_S)

    def stop(self) -> None:
        self._server.stop(grace=STOP_S, polite=signal.SIGINT)  # "fast": does not wait for clients

    def kill(self) -> None:
        """Kill it and its backends outright (-9)."""
        self._server.kill()

    def discard(self) -> None:
        """Kill it and delete its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _create(self, programs: Path, account: Account | None) -> None:
        """Make the cluster beside its place and move it there whole: a crash leaves no half."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory) as workshop:
            if account is not None:
                shutil.chown(workshop, account.uid, account.gid)
            draft = Path(workshop) / "data"
            secret = Path(workshop) / "password"
            state.write(secret, self.password)
            if account is not None:
                shutil.chown(secret, account.uid, account.gid)
            self._run(_initdb(programs, draft, secret), account)
            with (draft / "postgresql.conf").open("a", encoding="utf-8") as chosen_by_initdb:
                chosen_by_initdb.write(f"include = '{OURS}'\n")
            self._configure(draft, programs)
            single = [str(programs / "postgres"), "--single", "-D", str(draft)]
            self._run([*single, "postgres"], account, f"CREATE DATABASE {DATABASE}\n")
            if _has_statistics(programs):
                self._run([*single, DATABASE], account, f"CREATE EXTENSION {STATISTICS}\n")
            draft.rename(self._data)

    def _configure(self, data: Path, programs: Path) -> None:
        preload = STATISTICS if _has_statistics(programs) else ""
        settings = CONFIGURATION.format(host=LOOPBACK, port=self.port, preload=preload)
        path = data / OURS
        path.write_text(settings, encoding="utf-8")
        path.chmod(0o644)  # the account that runs the server reads it, whatever our umask

    def _run(self, command: list[str], account: Account | None, sql: str = "") -> None:
        log = self._server.log
        log.parent.mkdir(parents=True, exist_ok=True)
        if run(command, environment=_ENVIRONMENT, account=account, given=sql, log=log) != 0:
            reason = f"could not be set up ({Path(command[0]).name} failed)"
            raise StartFailed("postgres", reason, tail(log, TAIL_LINES))

    def _accepts(self) -> bool:
        command = [str(_programs() / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port)]
        return run(command, environment=_ENVIRONMENT) == 0


_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}  # no PG* of the caller's


def _programs() -> Path:
    """The newest version's programs."""
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
        "--no-sync",  # saves a second; what is written from now on is synced as usual
    ]


def _has_statistics(programs: Path) -> bool:
    return (programs.parent / "lib" / f"{STATISTICS}.so").exists()
