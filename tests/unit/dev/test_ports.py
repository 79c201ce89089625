"""Ports are free, stay the same, and are never given twice."""

import socket

import pytest

from harebell.dev.errors import NoFreePort
from harebell.dev.ports import FIRST_PORT, LAST_PORT, choose, is_free


def test_a_remembered_port_is_kept_while_it_is_free() -> None:
    chosen = choose(["amqp"], seed="here", remembered={"amqp": 20_123}, free=lambda _: True)

    assert chosen == {"amqp": 20_123}


def test_a_taken_port_is_chosen_again() -> None:
    chosen = choose(["amqp"], seed="here", remembered={"amqp": 20_123}, free=lambda p: p != 20_123)

    assert FIRST_PORT <= chosen["amqp"] <= LAST_PORT
    assert chosen["amqp"] != 20_123


def test_no_port_is_given_twice() -> None:
    names = [f"name-{number}" for number in range(500)]

    chosen = choose(names, seed="here", remembered={"other": 20_123}, free=lambda _: True)

    assert len({*chosen.values(), 20_123}) == len(names) + 1


def test_the_same_directory_gets_the_same_ports_and_another_one_others() -> None:
    def chosen(seed: str) -> dict[str, int]:
        return choose(["amqp"], seed=seed, remembered={}, free=lambda _: True)

    assert chosen("/a") == chosen("/a")
    assert chosen("/a") != chosen("/b")


def test_the_search_ends_when_every_port_is_taken() -> None:
    with pytest.raises(NoFreePort):
        choose(["amqp"], seed="here", remembered={}, free=lambda _: False)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free(port)
    assert is_free(port)
