"""Three private RabbitMQ nodes as one cluster, and the ways to break it: what tests need."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from harebell.dev.errors import StackError
from harebell.dev.ports import LOOPBACK, choose
from harebell.dev.rabbitmq import Broker, BrokerPorts, Epmd, Membership, clean
from harebell.dev.servers import EPMD_PORT, together
from harebell.dev.spawn import run
from harebell.dev.state import load_state, save_state

SIZE = 3
NODES = tuple(f"harebell-{number}@localhost" for number in range(1, SIZE + 1))
OWN_PORTS = [field.name for field in fields(BrokerPorts) if field.name != EPMD_PORT]
ESTRANGED = "estranged"  # a cookie that no node has


class CannotReach(StackError):
    """A node did not do what it was told through Erlang's own protocol."""

    def __init__(self, node: str) -> None:
        super().__init__(f"{node} cannot be told anything")


class Cluster:
    """Quorum queues that are declared in it get a member on each node.

    A node is one of `nodes`: `kill` and `start` it by itself. Data is kept until `discard`.
    """

    def __init__(self, root: Path, *, release: str | None = None) -> None:
        self.root = root.absolute()
        remembered = load_state(self.root)
        names = [f"{name}-{node}" for node in NODES for name in OWN_PORTS]
        ports = choose([EPMD_PORT, *names], seed=str(self.root), remembered=remembered.ports)
        self._state = remembered.model_copy(update={"ports": ports})
        self._epmd = Epmd(self.root, ports[EPMD_PORT])
        self.nodes = tuple(self._broker(node, release) for node in NODES)

    @property
    def amqp_url(self) -> str:
        """Of all nodes, as `HAREBELL_AMQP_URL` takes it."""
        return ",".join(node.amqp_url for node in self.nodes)

    def start(self) -> None:
        """All that do not run, at once: after a stop none opens before it has seen the others."""
        save_state(self.root, self._state)
        self._epmd.start()
        together([node.start for node in self.nodes])

    def stop(self) -> None:
        together([node.stop for node in self.nodes])
        self._epmd.stop()

    def discard(self) -> None:
        """Kill all of it and delete its data."""
        together([node.discard for node in self.nodes])
        self._epmd.kill()

    def isolate(self, node: Broker) -> None:
        """Cut a node off from the others, as a partition of the network would; clients reach all.

        It no longer knows the others' cookie, so that neither it nor they can connect again.
        """
        self._estrange(node, ESTRANGED)

    def heal(self, node: Broker) -> None:
        self._estrange(node, self._state.password)

    def _estrange(self, node: Broker, cookie: str) -> None:
        others = (other.name for other in self.nodes if other is not node)
        self._tell(node, [_reconnect(node.name, other, cookie) for other in others])

    def _tell(self, node: Broker, calls: Iterable[str]) -> None:
        """Through a hidden node, which no other node takes for one of the cluster."""
        interface = LOOPBACK.replace(".", ",")
        command = [
            *("erl", "-noinput", "-hidden", "-sname", "harebell-teller@localhost"),
            *("-setcookie", self._state.password),
            *("-kernel", "inet_dist_use_interface", f"{{{interface}}}"),
            *("-eval", f"{', '.join(calls)}, halt(0)."),
        ]
        environment = clean() | {"HOME": str(self.root), "ERL_EPMD_PORT": str(self._epmd.port)}
        if run(command, environment=environment, log=self.root / "logs" / "teller.log") != 0:
            raise CannotReach(node.name)

    def _broker(self, node: str, release: str | None) -> Broker:
        ports = {name: self._state.ports[f"{name}-{node}"] for name in OWN_PORTS}
        return Broker(
            self.root / node.partition("@")[0],
            ports=BrokerPorts(**ports, epmd=self._epmd.port),
            password=self._state.password,
            release=release,
            member=Membership(node, NODES, self._state.password, self._epmd),
        )


def _reconnect(node: str, other: str, cookie: str) -> str:
    """The Erlang of it: the new cookie counts at the next connection, so the old one is ended."""
    return (
        f"true = rpc:call('{node}', erlang, set_cookie, ['{other}', '{cookie}']), "
        f"_ = rpc:call('{node}', erlang, disconnect_node, ['{other}'])"
    )
