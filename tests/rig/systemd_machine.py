"""A machine with Debian and systemd, in a container of `systemd-nspawn`.

The machine shares the network of the host, so its services reach servers on loopback.
Its file system is a layer in memory over a tree of Debian, which is built once.
"""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TREE_SCRIPT: Final = Path(__file__).with_name("systemd_tree.sh")
BUILD_TIMEOUT: Final = 900.0  # seconds
BOOT_TIMEOUT: Final = 120.0  # seconds
COMMAND_TIMEOUT: Final = 300.0  # seconds
STOP_TIMEOUT: Final = 30.0  # seconds
POLL_INTERVAL: Final = 0.2  # seconds
READY_STATES: Final = frozenset({"running", "degraded"})  # degraded: a unit of Debian failed


def debian_tree(environ: Mapping[str, str]) -> Path:
    """Return the tree of Debian with systemd and Python. Build it at the first call."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    tree = Path(cache) / "harebell" / "systemd-tree"
    subprocess.run(["sh", TREE_SCRIPT, tree], check=True, timeout=BUILD_TIMEOUT)  # noqa: S603, S607  # a fixed command
    return tree


@dataclass(frozen=True, kw_only=True)
class SystemdMachine:
    """A running machine. `leader` is the process of systemd, as the host sees it."""

    leader: int

    @classmethod
    @contextmanager
    def boot(cls, tree: Path, log: Path, shared: Path) -> Iterator["SystemdMachine"]:
        """Boot the tree, which stays unchanged. The machine has the folder `shared` as /shared."""
        command = ["systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--boot"]
        command += ["--volatile=overlay", f"--bind-ro={shared}:/shared", f"--directory={tree}"]
        with log.open("wb") as output:
            container = subprocess.Popen(  # noqa: S603  # a fixed command
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            machine = cls(leader=_await_child(container))
            machine.await_boot()
            yield machine
        finally:
            container.terminate()
            try:
                container.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                container.kill()
                container.wait()

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        """Run a command on the machine and return what it prints to both streams."""
        inside = ["nsenter", f"--target={self.leader}", "--all", "--wdns=/", "env", "-i"]
        inside += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]
        done = subprocess.run(  # noqa: S603  # a command of a test
            [*inside, *command],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}"
        return done.stdout

    def write(self, path: str, content: str, mode: str = "0600") -> None:
        self.run("install", "-m", mode, "/dev/stdin", path, stdin=content)

    def await_boot(self) -> None:
        """Wait until systemd has started the units of Debian."""
        deadline = time.monotonic() + BOOT_TIMEOUT
        while (state := self.run("systemctl", "is-system-running", check=False)).strip() not in (
            READY_STATES
        ):
            assert time.monotonic() < deadline, f"the machine is {state}"
            time.sleep(POLL_INTERVAL)


def _await_child(container: "subprocess.Popen[bytes]") -> int:
    """Return the first process of the container, which is the child of `systemd-nspawn`."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    deadline = time.monotonic() + BOOT_TIMEOUT
    while container.poll() is None and time.monotonic() < deadline:
        for child in children.read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        time.sleep(POLL_INTERVAL)
    raise AssertionError(f"the container did not start: {container.returncode}")
