"""A private RabbitMQ node, alone or in a cluster, with every listener on loopback."""

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harebell.dev import state
from harebell.dev.errors import NotInstalled
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import LOOPBACK, is_free

# The command that becomes the node with its data in a given folder.
ServerCommand: TypeAlias = Callable[[Path], list[str]]

# The script of Debian. The script on PATH switches to the user and the data of the system.
DEBIAN_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
USER = "harebell"
START_TIMEOUT = 90.0  # seconds, including the recovery of many quorum queues after a kill
STOP_TIMEOUT = 30.0
PROBE_TIMEOUT = 1.0
DEAD_LETTER_RETRY_MS = 10_000
MAX_MESSAGE = 16 * 1024 * 1024  # bytes, the default of RabbitMQ 4; the default of 3.10 is 128 MiB
PLUGINS = "[rabbitmq_management,rabbitmq_prometheus].\n"

CONFIGURATION = """\
listeners.tcp.default = {host}:{ports.amqp}
management.tcp.ip = {host}
management.tcp.port = {ports.management}
prometheus.tcp.ip = {host}
prometheus.tcp.port = {ports.prometheus}
default_user = {user}
default_pass = {password}
max_message_size = {largest}
"""
CLUSTER_CONFIGURATION = """\
cluster_formation.peer_discovery_backend = classic_config
cluster_partition_handling = pause_minority
"""
NODE_NAME = "harebell@localhost"
EPMD_START_TIMEOUT = 10.0  # seconds
EPMD_STOP_TIMEOUT = 2.0


class Epmd:
    """A private Erlang port mapper. All nodes of a cluster use the same one."""

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
            self.daemon.start(command, environment=erlang_environment(), directory=self._directory)
        self.daemon.await_ready(lambda: not is_free(self.port), limit=EPMD_START_TIMEOUT)

    def stop(self) -> None:
        self.daemon.stop(grace=EPMD_STOP_TIMEOUT)

    def kill(self) -> None:
        self.daemon.kill()


def erlang_environment() -> dict[str, str]:
    """Return an environment without the RABBITMQ_*, ERL_* and HOME variables of the caller."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": f"{path}:/usr/sbin:/sbin", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The loopback ports of one node."""

    amqp: int
    management: int
    prometheus: int
    distribution: int
    epmd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMembership:
    """The place of a node in a cluster. `nodes` contains all nodes, which share the cookie."""

    node: str
    nodes: tuple[str, ...]
    cookie: str
    epmd: Epmd

    def configuration(self) -> str:
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {node}\n"
            for number, node in enumerate(self.nodes, 1)
        )
        return CLUSTER_CONFIGURATION + peers


def installed_server(_directory: Path) -> list[str]:
    """Return the command of the installed RabbitMQ. Raise `NotInstalled`."""
    if DEBIAN_SCRIPT.exists():
        return [str(DEBIAN_SCRIPT)]
    script = shutil.which("rabbitmq-server")
    if script is None:
        raise NotInstalled("rabbitmq-server", "HAREBELL_AMQP_URL")
    return [script]


class Broker:
    """A private RabbitMQ node with fixed ports and a fixed user.

    `command` returns the command of the node: the installed RabbitMQ, or another version in tests.
    """

    def __init__(
        self,
        root: Path,
        *,
        ports: BrokerPorts,
        password: str,
        command: ServerCommand = installed_server,
        member: ClusterMembership | None = None,
    ) -> None:
        self.ports = ports
        self.password = password
        self._command = command
        self._directory = root / "rabbitmq"
        self._node = BackgroundProcess("rabbitmq", root)
        self._member = member
        self._epmd = member.epmd if member else Epmd(root, ports.epmd)

    @property
    def amqp_url(self) -> str:
        """The URL without a path, which selects the virtual host `/`."""
        return f"amqp://{USER}:{self.password}@{LOOPBACK}:{self.ports.amqp}"

    @property
    def management_url(self) -> str:
        """The URL of the management UI and API, with the login of `amqp_url`."""
        return f"http://{LOOPBACK}:{self.ports.management}"

    @property
    def prometheus_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.prometheus}/metrics"

    @property
    def name(self) -> str:
        """The name of the Erlang node."""
        return self._member.node if self._member else NODE_NAME

    @property
    def daemons(self) -> tuple[BackgroundProcess, ...]:
        return (self._node, self._epmd.daemon)

    @property
    def running(self) -> bool:
        return self._node.process is not None

    @property
    def epmd_running(self) -> bool:
        return self._epmd.running

    def start(self) -> None:
        """Start the node and wait until it accepts AMQP connections.

        RabbitMQ opens its AMQP listener after the start of all plugins.
        """
        self._epmd.start()
        if not self.running:
            environment = self._prepare()
            self._node.start(
                self._command(self._directory), environment=environment, directory=self._directory
            )
        self._node.await_ready(self._is_ready, limit=START_TIMEOUT)

    def stop(self) -> None:
        """Stop the node. The port mapper of a cluster continues for the other nodes."""
        self._node.stop(grace=STOP_TIMEOUT)
        if self._member is None:
            self._epmd.stop()

    def kill(self) -> None:
        """Kill the node with SIGKILL and keep the port mapper."""
        self._node.kill()

    def discard(self) -> None:
        """Kill the node and delete its data. Keep the port mapper of a cluster."""
        self._node.kill()
        if self._member is None:
            self._epmd.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _prepare(self) -> dict[str, str]:
        """Write the configuration and return the environment of the node."""
        home = self._directory / "home"  # contains the cookie
        home.mkdir(parents=True, exist_ok=True)
        configuration = self._directory / "rabbitmq.conf"
        plugins = self._directory / "enabled_plugins"
        state.write(plugins, PLUGINS)
        state.write(configuration, self._configuration())
        if self._member is not None:
            cookie = home / ".erlang.cookie"
            state.write(cookie, self._member.cookie)
        return (
            erlang_environment()
            | {
                "HOME": str(home),
                # The script becomes the node, so that one process receives signals.
                "detached": "1",
                "ERL_EPMD_ADDRESS": LOOPBACK,
                "ERL_EPMD_PORT": str(self.ports.epmd),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",  # without the settings of the system node
                "RABBITMQ_CONFIG_FILE": str(configuration),
                "RABBITMQ_DIST_PORT": str(self.ports.distribution),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_LOG_BASE": str(self._directory / "log"),
                "RABBITMQ_MNESIA_BASE": str(self._directory / "data"),
                "RABBITMQ_NODENAME": self.name,
                "RABBITMQ_PID_FILE": str(self._directory / "pid"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                    "-kernel inet_dist_use_interface {" + LOOPBACK.replace(".", ",") + "}"
                    # After an outage, expired messages are dead-lettered within 10 s, not 180 s.
                    f" -rabbit dead_letter_worker_publisher_confirm_timeout {DEAD_LETTER_RETRY_MS}"
                ),
            }
        )

    def _configuration(self) -> str:
        configuration = CONFIGURATION.format(
            host=LOOPBACK,
            ports=self.ports,
            user=USER,
            password=self.password,
            largest=MAX_MESSAGE,
        )
        return configuration + (self._member.configuration() if self._member else "")

    def _is_ready(self) -> bool:
        """Return whether the node responds to an AMQP header with a method frame (type 1)."""
        try:
            with socket.create_connection((LOOPBACK, self.ports.amqp), PROBE_TIMEOUT) as client:
                client.sendall(b"AMQP\x00\x00\x09\x01")
                return client.recv(1) == b"\x01"
        except OSError:
            return False
