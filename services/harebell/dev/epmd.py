"""The Erlang port mapper, by which the nodes of one machine find each other: one of our own."""

import os
from pathlib import Path

from harebell.dev.daemon import BackgroundProcess
from harebell.dev.ports import LOOPBACK, is_free

EPMD_START_S = 10.0
EPMD_STOP_S = 2.0


class Epmd:
    """Known by its pid file: the nodes of a cluster hold one each, and all are the same."""

    def __init__(self, root: Path, port: int) -> None:
        self.port = port
        self.daemon = BackgroundProcess("epmd", root)
        self._directory = root

    @property
    def running(self) -> bool:
        return self.daemon.process is not None

    def start(self) -> None:
        if not self.running:
            self._directory.mkdir(parents=True, exist_ok=True)
            command = ["epmd", "-port", str(self.port), "-address", LOOPBACK]
            self.daemon.start(command, environment=clean(), directory=self._directory)
        self.daemon.await_ready(lambda: not is_free(self.port), limit=EPMD_START_S)

    def stop(self) -> None:
        self.daemon.stop(grace=EPMD_STOP_S)

    def kill(self) -> None:
        self.daemon.kill()


def clean() -> dict[str, str]:
    """The environment of Erlang's programs: no RABBITMQ_*, ERL_* or HOME of the caller's."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": f"{path}:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
