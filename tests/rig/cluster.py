"""A cluster of three private RabbitMQ nodes, with the failures that tests need."""

import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from tests.rig.broker_versions import server_command

from harebell.dev.errors import StackError
from harebell.dev.ports import LOOPBACK, choose_ports
from harebell.dev.rabbitmq import (
    Broker,
    BrokerPorts,
    ClusterMembership,
    Epmd,
    ServerCommand,
    erlang_environment,
)
from harebell.dev.servers import EPMD_PORT, run_concurrently
from harebell.dev.spawn import run
from harebell.dev.state import load_state, save_state

SIZE = 3
NODES = tuple(f"harebell-{number}@localhost" for number in range(1, SIZE + 1))
NODE_PORTS = [field.name for field in fields(BrokerPorts) if field.name != EPMD_PORT]
OTHER_COOKIE = "other"  # a cookie that no node has


class NodeControlFailed(StackError):
    """A node that did not execute a command of the Erlang distribution protocol."""

    def __init__(self, node: str) -> None:
        super().__init__(f"The node {node} must accept Erlang commands, but a command failed.")


class Cluster:
    """Three nodes. A quorum queue of the cluster has a member on each node.

    Tests kill and start single nodes of `nodes`. The data remains until `discard`.
    """

    def __init__(self, root: Path, *, version: str | None = None) -> None:
        self.root = root.absolute()
        saved = load_state(self.root)
        names = [f"{name}-{node}" for node in NODES for name in NODE_PORTS]
        ports = choose_ports([EPMD_PORT, *names], seed=str(self.root), remembered=saved.ports)
        self._state = saved.model_copy(update={"ports": ports})
        self._epmd = Epmd(self.root, ports[EPMD_PORT])
        command = server_command(version, os.environ)
        self.nodes = tuple(self._broker(node, command) for node in NODES)

    @property
    def amqp_url(self) -> str:
        """The URLs of all nodes, in the form of `HAREBELL_AMQP_URL`."""
        return ",".join(node.amqp_url for node in self.nodes)

    def start(self) -> None:
        """Start all stopped nodes at the same time, because each node waits for the others."""
        save_state(self.root, self._state)
        self._epmd.start()
        run_concurrently([node.start for node in self.nodes])

    def stop(self) -> None:
        run_concurrently([node.stop for node in self.nodes])
        self._epmd.stop()

    def discard(self) -> None:
        """Kill all nodes and delete their data."""
        run_concurrently([node.discard for node in self.nodes])
        self._epmd.kill()

    def isolate(self, node: Broker) -> None:
        """Separate a node from the other nodes, and keep its clients connected.

        The node receives another cookie, so that no node can connect to it.
        """
        self._set_cookie(node, OTHER_COOKIE)

    def heal(self, node: Broker) -> None:
        """Connect an isolated node with the other nodes."""
        self._set_cookie(node, self._state.password)

    def _set_cookie(self, node: Broker, cookie: str) -> None:
        others = (other.name for other in self.nodes if other is not node)
        self._call(node, [_reconnect(node.name, other, cookie) for other in others])

    def _call(self, node: Broker, calls: Iterable[str]) -> None:
        """Run Erlang calls through a hidden node, which does not join the cluster."""
        interface = LOOPBACK.replace(".", ",")
        command = [
            "erl",
            "-noinput",
            "-hidden",
            "-sname",
            "harebell-control@localhost",
            "-setcookie",
            self._state.password,
            "-kernel",
            "inet_dist_use_interface",
            f"{{{interface}}}",
            "-eval",
            f"{', '.join(calls)}, halt(0).",
        ]
        environment = erlang_environment() | {
            "HOME": str(self.root),
            "ERL_EPMD_PORT": str(self._epmd.port),
        }
        if run(command, environment=environment, log=self.root / "logs" / "control.log") != 0:
            raise NodeControlFailed(node.name)

    def _broker(self, node: str, command: ServerCommand) -> Broker:
        ports = {name: self._state.ports[f"{name}-{node}"] for name in NODE_PORTS}
        return Broker(
            self.root / node.partition("@")[0],
            ports=BrokerPorts(**ports, epmd=self._epmd.port),
            password=self._state.password,
            command=command,
            member=ClusterMembership(
                node=node, nodes=NODES, cookie=self._state.password, epmd=self._epmd
            ),
        )


def _reconnect(node: str, other: str, cookie: str) -> str:
    """Return Erlang code that sets a cookie and ends the connection with the old cookie."""
    return (
        f"true = rpc:call('{node}', erlang, set_cookie, ['{other}', '{cookie}']), "
        f"_ = rpc:call('{node}', erlang, disconnect_node, ['{other}'])"
    )
