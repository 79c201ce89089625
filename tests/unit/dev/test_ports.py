"""Free ports, which stay the same and are never assigned twice."""

import socket
import subprocess
import sys

import pytest

from harebell.dev.errors import NoFreePort
from harebell.dev.ports import FIRST_PORT, LAST_PORT, choose_ports, is_free, release


def test_free_remembered_port_is_kept() -> None:
    chosen = choose_ports(["amqp"], seed="here", remembered={"amqp": 20_123}, free=lambda _: True)

    assert chosen == {"amqp": 20_123}


def test_used_port_is_replaced() -> None:
    chosen = choose_ports(
        ["amqp"], seed="here", remembered={"amqp": 20_123}, free=lambda p: p != 20_123
    )

    assert FIRST_PORT <= chosen["amqp"] <= LAST_PORT
    assert chosen["amqp"] != 20_123


def test_each_name_has_another_port() -> None:
    names = [f"name-{number}" for number in range(500)]

    chosen = choose_ports(names, seed="here", remembered={"other": 20_123}, free=lambda _: True)

    assert len({*chosen.values(), 20_123}) == len(names) + 1


def test_ports_depend_on_the_folder() -> None:
    def chosen(seed: str) -> dict[str, int]:
        return choose_ports(["amqp"], seed=seed, remembered={}, free=lambda _: True)

    assert chosen("/a") == chosen("/a")
    assert chosen("/a") != chosen("/b")


def test_search_ends_when_every_port_is_in_use() -> None:
    with pytest.raises(NoFreePort):
        choose_ports(["amqp"], seed="here", remembered={}, free=lambda _: False)


def test_listening_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free(port)
    assert is_free(port)


def test_port_of_another_process_is_not_chosen_before_its_server_listens() -> None:
    [port] = choose_ports(["amqp"], seed="reserved", remembered={}).values()
    choose = (
        "from harebell.dev.ports import choose_ports;"
        f"print(*choose_ports(['amqp'], seed='reserved', remembered={{'amqp': {port}}}).values())"
    )

    def of_another_process() -> int:
        command = (sys.executable, "-c", choose)
        run = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # Python
        return int(run.stdout)

    assert is_free(port)
    assert of_another_process() != port
    assert choose_ports(["other"], seed="reserved", remembered={})["other"] != port

    release([port])

    assert of_another_process() == port
