"""A private Docker daemon, with images of Debian packages under the names of the official images.

No registry is reachable in the tests. The images accept the variables, the commands and the mounts
of the official images, so that a test runs the shipped files without a change.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.rig.broker_versions import cache_folder

ROOT: Final = Path(__file__).parents[2]
STAND_INS: Final = Path(__file__).parent / "stand_ins"
BUILD_TREE: Final = Path(__file__).parent / "debian_root.sh"
COMPOSE_PLUGIN: Final = Path(sys.executable).with_name("docker-compose")
SUITE: Final = "trixie"
# The packages of the trees, and the image into which Docker imports each tree.
PYTHON_PACKAGES: Final = ("python3", "python3-venv", "python3-pip", "ca-certificates")
SERVER_PACKAGES: Final = ("rabbitmq-server", "postgresql", "prometheus", "busybox", "python3-yaml")
TREES: Final = {"python-tree": PYTHON_PACKAGES, "server-tree": SERVER_PACKAGES}
NOT_IMPORTED: Final = (
    "./proc",
    "./sys",
    "./dev",
    "./var/cache",
    "./var/lib/apt/lists",
    "./usr/share/doc",
)
OFFICIAL_NAMES: Final = {
    "python": "python:3.13-slim-trixie",
    "rabbitmq": "rabbitmq:4-management",
    "postgres": "postgres:17",
    "prometheus": "prom/prometheus:v3.5.0",
    "grafana": "grafana/grafana:12.1.0",
}
START_TIMEOUT: Final = 60.0  # seconds
STOP_TIMEOUT: Final = 30.0  # seconds
COMMAND_TIMEOUT: Final = 540.0  # seconds, for a build or a start of the stack
POLL: Final = 0.1  # seconds
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
INDEX_OPTIONS: Final = ("index-url", "extra-index-url", "trusted-host")


def why_not() -> str | None:
    """Return the reason why this machine cannot run the daemon, or None."""
    if os.geteuid() != 0:
        return "A private Docker daemon needs root."
    missing = [name for name in ("dockerd", "docker", "debootstrap", "iptables") if not which(name)]
    return f"The programs {', '.join(missing)} are not installed." if missing else None


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True, slots=True)
class Docker:
    """A running daemon. `environment` lets `docker` and `docker compose` use it."""

    environment: Mapping[str, str]

    def run(
        self, command: Sequence[str], *, check: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with this daemon and return its output, both streams in one."""
        result = subprocess.run(  # noqa: S603  # commands of the tests
            command,
            cwd=cwd,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        assert not check or result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-4000:]}"
        return result

    def build(self, context: Path, name: str, *options: str) -> None:
        self.run(["docker", "build", "--quiet", *options, "--tag", name, str(context)])


@contextlib.contextmanager
def private_docker(directory: Path) -> Iterator[Docker]:
    """Start a daemon below `directory`, and end it and its containers at the end of the block."""
    socket = Path(tempfile.mkdtemp(prefix="harebell-docker-")) / "docker.sock"  # a short path
    plugins = directory / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(COMPOSE_PLUGIN)
    environment = {
        "DOCKER_HOST": f"unix://{socket}",
        "DOCKER_CONFIG": str(plugins.parent),
        "DOCKER_BUILDKIT": "0",  # the builder of the daemon needs no plugin
    }
    docker = Docker(environment)
    with (directory / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(  # noqa: S603  # commands of the tests
            _daemon_command(directory, socket),
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
        try:
            _wait_until_ready(docker, daemon, directory / "dockerd.log")
            yield docker
        finally:
            _stop(docker, daemon)
            # The daemon leaves this mount, which would keep the folder from its removal.
            namespaces = directory / "exec" / "netns" / "default"
            docker.run(["umount", "--lazy", str(namespaces)], check=False)
            shutil.rmtree(socket.parent, ignore_errors=True)


def _daemon_command(directory: Path, socket: Path) -> list[str]:
    # Another daemon of this machine keeps its own bridge. Compose makes the networks of the stack.
    folders = {"data-root": "data", "exec-root": "exec", "pidfile": "dockerd.pid"}
    # The kernel ends the daemon, and the daemon its containers, if the test process is killed.
    return [
        "setpriv",
        "--pdeathsig=TERM",
        which("dockerd") or "dockerd",
        f"--host=unix://{socket}",
        *(f"--{option}={directory / name}" for option, name in folders.items()),
        "--bridge=none",
    ]


def _wait_until_ready(docker: Docker, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while docker.run(["docker", "info"], check=False).returncode != 0:
        assert daemon.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(POLL)


def _stop(docker: Docker, daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is None:
        containers = docker.run(["docker", "ps", "--quiet"], check=False).stdout.split()
        if containers:
            docker.run(["docker", "kill", *containers], check=False)
        docker.run(["docker", "network", "prune", "--force"], check=False)
        daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def provide_official_images(docker: Docker, directory: Path, names: Sequence[str]) -> None:
    """Build the stand-ins with these names of `OFFICIAL_NAMES`."""
    needed = {"python-tree" if name == "python" else "server-tree" for name in names}
    for tree in sorted(needed):
        _import_tree(docker, _tree(tree), f"harebell-stand-in/{tree}")
    for name in names:
        context = directory / name
        shutil.copytree(STAND_INS / name, context)
        if name == "python":
            shutil.copy(AUTHORITIES, context / "ca.crt")
            (context / "pip.conf").write_text(_pip_configuration())
        docker.build(context, OFFICIAL_NAMES[name])


def _tree(name: str) -> Path:
    """Return the Debian tree with the packages of the image, which is built once."""
    packages = TREES[name]
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    tree = cache_folder(os.environ) / f"{name}-{digest}"
    subprocess.run(  # noqa: S603  # commands of the tests
        ["/bin/sh", str(BUILD_TREE), SUITE, str(tree), *packages],
        check=True,
        timeout=COMMAND_TIMEOUT,
    )
    return tree


def _import_tree(docker: Docker, tree: Path, name: str) -> None:
    excluded = [f"--exclude={path}/*" for path in NOT_IMPORTED]
    with subprocess.Popen(  # noqa: S603  # commands of the tests
        ["/bin/tar", "--create", *excluded, "--directory", str(tree), "."],
        stdout=subprocess.PIPE,
    ) as tar:
        imported = subprocess.run(  # noqa: S603  # commands of the tests
            [which("docker") or "docker", "import", "-", name],
            env={**os.environ, **docker.environment},
            stdin=tar.stdout,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    assert imported.returncode == 0, imported.stderr


def _pip_configuration() -> str:
    """Return the package index of this machine. A folder of this machine is not in the image."""
    lines = ["[global]", f"cert = {AUTHORITIES}"]
    listed = subprocess.run(  # commands of the tests
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        option = key.rpartition(".")[2]
        remote = [part for part in value.strip("'").split() if not part.startswith("file:")]
        if option in INDEX_OPTIONS and remote:
            lines.append(f"{option} = {' '.join(remote)}")
    return "\n".join(lines) + "\n"
