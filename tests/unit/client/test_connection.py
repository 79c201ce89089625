"""Connections without a broker: the accepted URLs, and the cleanup after a failure."""

import asyncio
import gc
import logging
import warnings
from contextlib import suppress

import pytest

from harebell.connection.amqp import connect, parse_amqp_urls
from harebell.contract.errors import BrokerUnavailable, InvalidInput
from harebell.dev.ports import LOOPBACK


def test_one_url_is_one_node() -> None:
    (node,) = parse_amqp_urls("amqp://me:secret@broker.example/prod")

    assert (node.host, node.user, node.path) == ("broker.example", "me", "/prod")


def test_commas_separate_the_nodes_of_a_cluster() -> None:
    nodes = parse_amqp_urls("amqp://me@a.example/, amqps://me@b.example:5671/")

    assert [node.host for node in nodes] == ["a.example", "b.example"]


@pytest.mark.parametrize(
    "urls",
    ["", ",", "amqp://", "http://me:secret@broker.example/", "amqp://a.example/,b.example"],
)
def test_invalid_url_is_rejected_and_not_shown(urls: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_amqp_urls(urls)

    assert caught.value.field == "amqp_url"
    assert "secret" not in caught.value.reason


def test_nodes_of_one_cluster_must_have_the_same_user() -> None:
    with pytest.raises(InvalidInput, match="the same user"):
        parse_amqp_urls("amqp://me@a.example/,amqp://you@b.example/")


async def test_failed_connection_is_closed_before_the_garbage_collector_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "aiormq")  # a log record would keep the connection alive
    url = f"amqp://guest:guest@{LOOPBACK}:1/"

    gc.disable()
    try:
        with suppress(BrokerUnavailable):
            await connect(url, name="test", properties={})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            await asyncio.to_thread(gc.collect)
    finally:
        gc.enable()

    assert not [str(each.message) for each in warned]
