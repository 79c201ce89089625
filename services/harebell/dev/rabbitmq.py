"""The Erlang port mapper, by which the nodes of one machine find each other: one of our own."""

import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.rig.broker_versions import installation

from harebell.dev import state
from harebell.dev.pid_file import BackgroundProcess
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


USER = "harebell"
START_S = 90.0  # a node that recovers many quorum queues after a kill takes longer than a new one
STOP_S = 30.0
ANSWER_S = 1.0
DEAD_LETTER_RETRY_MS = 10_000
MAX_MESSAGE = 16 * 1024 * 1024  # bytes, as RabbitMQ 4 has it; 3.10 would take 128 MiB
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
CLUSTERED = """\
cluster_formation.peer_discovery_backend = classic_config
cluster_partition_handling = pause_minority
"""
ALONE = "harebell@localhost"


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    amqp: int
    management: int
    prometheus: int
    distribution: int
    epmd: int


@dataclass(frozen=True, slots=True)
class Membership:
    """What makes a node one of a cluster. `nodes` are all of them; the cookie lets them in."""

    node: str
    nodes: tuple[str, ...]
    cookie: str
    epmd: Epmd

    def configuration(self) -> str:
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {node}\n"
            for number, node in enumerate(self.nodes, 1)
        )
        return CLUSTERED + peers


class Broker:
    """A RabbitMQ node of our own. Its ports and user are fixed here, so clients may come back."""

    def __init__(
        self,
        root: Path,
        *,
        ports: BrokerPorts,
        password: str,
        release: str | None = None,
        member: Membership | None = None,
    ) -> None:
        self.ports = ports
        self.password = password
        self._release = release
        self._directory = root / "rabbitmq"
        self._node = BackgroundProcess("rabbitmq", root)
        self._member = member
        self._epmd = member.epmd if member else Epmd(root, ports.epmd)

    @property
    def amqp_url(self) -> str:
        """Without a path, which every client reads as the virtual host `/`."""
        return f"amqp://{USER}:{self.password}@{LOOPBACK}:{self.ports.amqp}"

    @property
    def management_url(self) -> str:
        """The management UI and API; the login is the one of `amqp_url`."""
        return f"http://{LOOPBACK}:{self.ports.management}"

    @property
    def prometheus_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.prometheus}/metrics"

    @property
    def name(self) -> str:
        """Among Erlang's nodes; epmd knows it by that."""
        return self._member.node if self._member else ALONE

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
        """Return when AMQP and the management API answer; the node's data is kept from last time.

        RabbitMQ opens its AMQP listener last, when all plugins have started.
        """
        self._epmd.start()
        if not self.running:
            environment = self._prepare()
            command = installation(self._release, os.environ).command(self._directory)
            self._node.start(command, environment=environment, directory=self._directory)
        self._node.await_ready(self._answers, limit=START_S)

    def stop(self) -> None:
        """A cluster's epmd is left to the other nodes."""
        self._node.stop(grace=STOP_S)
        if self._member is None:
            self._epmd.stop()

    def kill(self) -> None:
        """Kill the node outright (-9) and leave epmd, as when the broker alone crashes."""
        self._node.kill()

    def discard(self) -> None:
        """Kill all of it and delete its data; a cluster's epmd is left to the other nodes."""
        self._node.kill()
        if self._member is None:
            self._epmd.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _prepare(self) -> dict[str, str]:
        """Write the configuration and return the environment that names it."""
        home = self._directory / "home"  # the cookie's place
        home.mkdir(parents=True, exist_ok=True)
        configuration = self._directory / "rabbitmq.conf"
        plugins = self._directory / "enabled_plugins"
        state.write(plugins, PLUGINS)
        state.write(configuration, self._configuration())
        if self._member is not None:
            cookie = home / ".erlang.cookie"
            state.write(cookie, self._member.cookie)
        return (
            clean()
            | {
                "HOME": str(home),
                "detached": "1",  # the script becomes the node: one process to signal, not two
                "ERL_EPMD_ADDRESS": LOOPBACK,
                "ERL_EPMD_PORT": str(self.ports.epmd),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",  # the system node's settings are not ours
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
                    # what expired while the broker was down is tried again soon, not in 3 minutes
                    f" -rabbit dead_letter_worker_publisher_confirm_timeout {DEAD_LETTER_RETRY_MS}"
                ),
            }
        )

    def _configuration(self) -> str:
        own = CONFIGURATION.format(
            host=LOOPBACK,
            ports=self.ports,
            user=USER,
            password=self.password,
            largest=MAX_MESSAGE,
        )
        return own + (self._member.configuration() if self._member else "")

    def _answers(self) -> bool:
        """Whether an AMQP greeting gets one back: `Connection.Start`, a method frame (type 1)."""
        try:
            with socket.create_connection((LOOPBACK, self.ports.amqp), ANSWER_S) as client:
                client.sendall(b"AMQP\x00\x00\x09\x01")
                return client.recv(1) == b"\x01"
        except OSError:
            return False
