"""Links of a stack: the addresses of its TCP proxies, and the conditions of these proxies."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

from tests.architecture.source_tree import ROOT

BROKER: Final = "broker"
DATABASE: Final = "database"
SERVERS: Final = (BROKER, DATABASE)


def link_name(service: str, server: str) -> str:
    return f"{service}/{server}"


@dataclass(frozen=True)
class Links:
    """One TCP proxy for each pair of a service and a server, such as `executor-1/broker`."""

    ports: Mapping[str, int]
    process: "subprocess.Popen[str]"
    lock: Lock

    @classmethod
    @contextmanager
    def open(
        cls, services: list[str], urls: Mapping[str, str], *, reads_amqp: bool = False
    ) -> Iterator["Links"]:
        """Start the proxies. `urls` contains the servers that services reach through links.

        With `reads_amqp`, the links to the broker can confirm messages and drop them.
        """
        parts = {server: urlsplit(url) for server, url in urls.items()}
        protocols = {BROKER: ["amqp"]} if reads_amqp else {}
        addresses = {
            link_name(service, server): (url.hostname, url.port, *protocols.get(server, ()))
            for service in services
            for server, url in parts.items()
        }
        command = [sys.executable, "-m", "tests.rig.tcp_proxy", json.dumps(addresses)]
        with subprocess.Popen(  # noqa: S603  # a fixed command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            try:
                yield cls(json.loads(process.stdout.readline()), process, Lock())
            finally:
                process.kill()

    def through(self, url: str, service: str, server: str) -> str:
        """Return the URL through the link, or the same URL if no such link exists."""
        port = self.ports.get(link_name(service, server))
        if port is None:
            return url
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()

    def set(self, service: str, server: str, **condition: Any) -> None:
        """Set the condition of a link, in the form of `tcp_proxy`. An empty one repairs it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"link": link_name(service, server), **condition}
        with self.lock:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
