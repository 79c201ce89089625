"""What names a broker: one URL, or those of a cluster's nodes."""

import pytest

from harebell.client.connection import parse_amqp_urls
from harebell.contract.errors import InvalidInput


def test_one_url_is_one_node() -> None:
    (node,) = parse_amqp_urls("amqp://me:secret@broker.example/prod")

    assert (node.host, node.user, node.path) == ("broker.example", "me", "/prod")


def test_commas_stand_between_the_nodes_of_a_cluster() -> None:
    nodes = parse_amqp_urls("amqp://me@a.example/, amqps://me@b.example:5671/")

    assert [node.host for node in nodes] == ["a.example", "b.example"]


@pytest.mark.parametrize(
    "urls",
    ["", ",", "amqp://", "http://me:secret@broker.example/", "amqp://a.example/,b.example"],
)
def test_what_is_no_amqp_url_is_refused_and_not_shown(urls: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_amqp_urls(urls)

    assert refused.value.field == "amqp_url"
    assert "secret" not in refused.value.reason


def test_nodes_of_one_cluster_have_one_user() -> None:
    with pytest.raises(InvalidInput, match="several users"):
        parse_amqp_urls("amqp://me@a.example/,amqp://you@b.example/")
