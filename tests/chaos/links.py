"""The links of a stack as tests see them: addresses through the proxy, and how they are."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

from tests.rig import tcp_proxy

BROKER: Final = "broker"
DATABASE: Final = "database"
SERVERS: Final = (BROKER, DATABASE)


def name_of(service: str, server: str) -> str:
    return f"{service}/{server}"


@dataclass(frozen=True)
class Links:
    """One from each service to each server: `executor-1/broker`."""

    ports: Mapping[str, int]
    process: "subprocess.Popen[str]"
    lock: Lock

    @classmethod
    @contextmanager
    def open(cls, services: list[str], urls: Mapping[str, str]) -> Iterator["Links"]:
        """`urls`: of each server that is to be reached through links."""
        parts = {server: urlsplit(url) for server, url in urls.items()}
        places = {
            name_of(service, server): (url.hostname, url.port)
            for service in services
            for server, url in parts.items()
        }
        command = [sys.executable, "-I", str(tcp_proxy.__file__), json.dumps(places)]
        with subprocess.Popen(  # noqa: S603  # ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield cls(json.loads(process.stdout.readline()), process, Lock())
            finally:
                process.kill()

    def through(self, url: str, service: str, server: str) -> str:
        """The same URL by way of that link, if there is one."""
        port = self.ports.get(name_of(service, server))
        if port is None:
            return url
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()

    def set(self, service: str, server: str, **condition: Any) -> None:
        """As `proxy.py` explains it; nothing said: as it should be."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"link": name_of(service, server), **condition}
        with self.lock:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
