import pytest

from harebell.connection.amqp import parse_amqp_urls
from harebell.connection.tls import broker_weaknesses
from harebell.contract.errors import InvalidInput


@pytest.mark.parametrize(
    ("urls", "weaknesses"),
    [
        ("amqp://u@127.0.0.1/", []),
        ("amqp://u@localhost/,amqp://u@[::1]/", []),
        ("amqps://u@mq.example/", []),
        (
            "amqp://u@mq.example/,amqps://u@127.0.0.1/",
            ["The link to the broker at mq.example is not encrypted: use amqps."],
        ),
        (
            "amqps://u@mq.example/?no_verify_ssl=1",
            ["The certificate of the broker at mq.example is not verified: remove no_verify_ssl."],
        ),
    ],
)
def test_weaknesses_name_the_host_and_the_remedy(urls: str, weaknesses: list[str]) -> None:
    assert broker_weaknesses(parse_amqp_urls(urls)) == weaknesses


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("amqp://u@h/?cafile=/ca.pem", "cafile of an AMQP URL needs the scheme amqps"),
        ("amqps://u@h/?certfile=/a.pem", "both parameters certfile and keyfile"),
        ("amqps://u@h/?auth=kerberos", "must be plain or external, not 'kerberos'"),
        ("amqps://u@h/?auth=external", "auth=external must have the parameters certfile"),
    ],
)
def test_url_with_an_incomplete_identity_is_an_error(url: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_amqp_urls(url)
