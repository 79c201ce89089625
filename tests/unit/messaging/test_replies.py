"""The bounds of the replies of one receiver, and of the number of receivers."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from harebell.contract.errors import BrokerUnavailable
from harebell.messaging import metrics, replies
from harebell.messaging.replies import (
    MAX_REPLY_BYTES,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Replies,
    reply,
)

SMALL = reply("acme.answers", "c", b"{}", message_id="m")


class Broker:
    """A broker that refuses connections while `is_away`, and records the replies of each one."""

    def __init__(self) -> None:
        self.is_away = False
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.sent: list[tuple[str, bytes]] = []

    async def open(self, receiver: str) -> Any:
        if self.is_away:
            raise BrokerUnavailable("The broker is away.")
        self.opened.append(receiver)

        async def publish(body: bytes, **_: Any) -> None:
            self.sent.append((receiver, body))

        async def underlay() -> Any:
            return SimpleNamespace(basic_publish=publish)

        async def channel(*, publisher_confirms: bool) -> Any:
            assert not publisher_confirms
            return SimpleNamespace(is_closed=False, get_underlay_channel=underlay)

        async def close() -> None:
            self.closed.append(receiver)

        return SimpleNamespace(is_closed=False, channel=channel, close=close)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # a metric has no event
            await asyncio.sleep(0.01)


def dropped(reason: str) -> float:
    value: float = metrics.DROPPED_REPLIES.labels(reason)._value.get()  # noqa: SLF001  # no public name
    return value


async def test_each_receiver_has_a_connection_for_all_its_replies() -> None:
    broker = Broker()
    sender = Replies(broker.open)

    for receiver in ("acme", "umbrella", "acme"):
        sender.send(receiver, SMALL)
    await sender.close(within=1)

    assert sorted(broker.opened) == ["acme", "umbrella"] == sorted(broker.closed)
    assert sorted(broker.sent) == [("acme", b"{}"), ("acme", b"{}"), ("umbrella", b"{}")]


@pytest.mark.requirement("S16", "P6")
@pytest.mark.parametrize(
    ("size", "number"), [(2, MAX_WAITING), (MAX_WAITING_BYTES // 4, 4)], ids=["number", "bytes"]
)
async def test_replies_that_wait_are_bounded_for_each_receiver(size: int, number: int) -> None:
    broker = Broker()
    broker.is_away = True
    sender = Replies(broker.open)
    before = dropped("full")

    for _ in range(number + 3):
        sender.send("acme", reply("acme.answers", "c", b"x" * size, message_id="m"))
    sender.send("umbrella", SMALL)

    assert dropped("full") == before + 3
    await sender.close(within=0)
    assert broker.sent == []


async def test_reply_is_dropped_when_no_client_waits_for_it_any_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "MAX_WAIT", 0.05)
    monkeypatch.setattr(replies, "REOPEN_PAUSE", 0.02)
    broker = Broker()
    broker.is_away = True
    sender = Replies(broker.open)
    before = dropped("late")
    sender.send("acme", SMALL)
    await until(lambda: dropped("late") > before)
    broker.is_away = False

    sender.send("acme", SMALL)
    await sender.close(within=1)

    assert broker.sent == [("acme", b"{}")]


async def test_receiver_that_is_idle_makes_place_and_a_busy_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "MAX_RECEIVERS", 2)
    broker = Broker()
    sender = Replies(broker.open)
    before = dropped("receivers")
    sender.send("first", SMALL)
    await until(lambda: bool(broker.sent))
    broker.is_away = True
    sender.send("busy", SMALL)
    sender.send("second", SMALL)  # takes the place of the first

    sender.send("third", SMALL)

    assert dropped("receivers") == before + 1
    await sender.close(within=0)
    assert broker.closed == ["first"]


async def test_idle_connection_closes_and_the_next_reply_opens_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "MAX_IDLE", 0.02)
    broker = Broker()
    sender = Replies(broker.open)

    sender.send("acme", SMALL)
    await until(lambda: bool(broker.closed))
    sender.send("acme", SMALL)
    await sender.close(within=1)

    assert broker.opened == ["acme", "acme"]
    assert len(broker.sent) == 2


async def test_replies_of_all_receivers_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "MAX_ALL_BYTES", 3 * len(SMALL.body))
    broker = Broker()
    broker.is_away = True
    sender = Replies(broker.open)
    before = dropped("full")

    for receiver in ("acme", "umbrella", "initech", "stark"):
        sender.send(receiver, SMALL)

    assert dropped("full") == before + 1
    await sender.close(within=0)


@pytest.mark.parametrize("length", [0, 246, 247, 251, 255])
def test_reply_to_the_longest_correlation_id_has_valid_properties(length: int) -> None:
    correlation_id = "c" * length

    outgoing = reply("acme.answers", correlation_id, b"{}", message_id=f"{correlation_id}/response")

    assert outgoing.correlation_id == correlation_id
    assert len(outgoing.message_id) <= 255
    assert outgoing.to_aio_pika().properties.marshal()


def test_response_that_the_broker_would_refuse_becomes_an_error() -> None:
    fitting = reply("acme.answers", "c", b"x" * MAX_REPLY_BYTES, message_id="m")
    too_large = reply("acme.answers", "c", b"x" * (MAX_REPLY_BYTES + 1), message_id="m")

    assert fitting.body == b"x" * MAX_REPLY_BYTES
    error = orjson.loads(too_large.body)["error"]
    assert (error["code"], str(MAX_REPLY_BYTES) in error["reason"]) == ("reply_too_large", True)
