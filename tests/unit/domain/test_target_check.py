"""The rules of the tenant policy for pools, priorities and targets."""

from collections.abc import Callable
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from harebell.contract.errors import InvalidInput, NotAllowed, PrivateAddress, Rejected
from harebell.contract.target import Target
from harebell.domain.target_check import check_address, check_pool, check_priority, check_target
from harebell.domain.tenant_policy import TenantPolicies, TenantPolicy
from harebell.domain.url_policy import Egress

TARGET: Final[TypeAdapter[Target]] = TypeAdapter(Target)
INSTALLATION: Final = Egress([ip_network("10.0.0.0/8"), ip_network("127.0.0.0/8")])


def policy(**fields: Any) -> TenantPolicy:
    return TenantPolicies.parse({"tenants": {"acme": fields}}).of("acme")


def check(target: dict[str, Any], of: TenantPolicy, egress: Egress = INSTALLATION) -> None:
    check_target(TARGET.validate_python(target), "acme", of, egress=egress)


def url(text: str) -> dict[str, Any]:
    return {"http": {"url": text}}


def refusal(act: Callable[[], None]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        act()
    return caught.value


def test_pool_and_priority_are_bounded() -> None:
    bounded = policy(pools=["default", "acme.*"], priority_max=7)

    check_pool("acme.fast", bounded)
    check_priority(7, bounded)
    pool = refusal(lambda: check_pool("vip", bounded))
    priority = refusal(lambda: check_priority(8, bounded))

    assert (pool.code, pool.field) == ("not_allowed", "pool")
    assert (priority.code, priority.field) == ("not_allowed", "priority")


def test_exchange_of_another_tenant_is_refused() -> None:
    check({"amqp": {"exchange": "acme.orders"}}, policy())
    error = refusal(lambda: check({"amqp": {"exchange": "umbrella.orders"}}, policy()))

    assert (error.code, error.field) == ("not_allowed", "target.amqp.exchange")
    assert isinstance(error, NotAllowed)
    assert error.rule == "exchanges"


def test_reply_queue_of_another_tenant_is_refused() -> None:
    def target(queue: str) -> dict[str, Any]:
        return {"amqp": {"exchange": "acme.orders", "reply_to": queue}}

    listed = policy(reply_queues=["shared.replies", "partner.*"])
    for queue in ("acme.replies", "shared.replies", "partner.b"):
        check(target(queue), listed)
    check_target(
        TARGET.validate_python(target("any")),
        "acme",
        TenantPolicies.unrestricted().of("acme"),
        egress=INSTALLATION,
    )

    for queue, of in (("umbrella.replies", listed), ("acme", listed), ("partner.b", policy())):
        error = refusal(partial(check, target(queue), of))
        assert (error.code, error.field) == ("not_allowed", "target.amqp.reply_to")
        assert isinstance(error, NotAllowed)
        assert error.rule == "reply_queues"


def test_task_must_be_listed() -> None:
    listed = policy(tasks=["acme.*"])

    check({"task": {"name": "acme.report"}}, listed)
    error = refusal(lambda: check({"task": {"name": "harebell.sleep"}}, listed))

    assert (error.code, error.field) == ("not_allowed", "target.task.name")


@pytest.mark.parametrize(
    ("text", "fields", "rule"),
    [
        ("https://api.example/x", {"hosts": ["api.example"]}, None),
        ("https://API.example./x", {"hosts": ["api.example"]}, None),
        ("https://evil.example/x", {"hosts": ["api.example"]}, "hosts"),
        ("https://api.example@evil.example/", {"hosts": ["api.example"]}, "hosts"),
        ("https://10.0.0.7/", {"hosts": ["10.0.0.7"]}, None),
        ("https://0x0a000007/", {"hosts": ["10.0.0.7"]}, None),
        ("https://10.0.0.8/", {"hosts": ["10.0.0.7"]}, "hosts"),
        ("http://8.8.8.8/", {}, None),
        ("http://8.8.8.8:8080/", {}, "ports"),
        ("http://8.8.8.8:25/", {"ports": [25]}, None),
        ("http://8.8.8.8:9/", {"ports": ["*"]}, None),
        ("http://10.0.0.7:8080/", {}, None),
        ("http://10.0.0.7:8080/", {"networks": ["10.0.0.0/24"]}, None),
        ("http://10.1.0.7:8080/", {"networks": ["10.0.0.0/24"]}, "networks"),
        ("http://10.0.0.7:8080/", {"networks": []}, "networks"),
        ("http://[::ffff:10.1.0.7]/", {"networks": ["10.0.0.0/24"]}, "networks"),
        ("http://mail.example:25/", {}, None),
        ("http://mail.example:25/", {"networks": []}, "ports"),
    ],
)
def test_url_is_bounded_by_hosts_ports_and_networks(
    text: str, fields: dict[str, Any], rule: str | None
) -> None:
    if rule is None:
        check(url(text), policy(**fields))
        return
    error = refusal(lambda: check(url(text), policy(**fields)))

    assert isinstance(error, NotAllowed)
    assert (error.code, error.field, error.rule) == ("not_allowed", "target.http.url", rule)


def test_policy_never_permits_more_than_the_installation() -> None:
    every = policy(networks=["0.0.0.0/0"], ports=["*"])

    error = refusal(lambda: check(url("http://192.168.0.1/"), every))
    denied = Egress([], [ip_network("8.8.0.0/16")])
    public = refusal(lambda: check(url("http://8.8.8.8/"), every, denied))

    assert isinstance(error, PrivateAddress)
    assert isinstance(public, PrivateAddress)


@pytest.mark.parametrize("text", ["http://x.example:99999/", "http://[::1/"])
def test_url_that_yarl_cannot_read_is_invalid(text: str) -> None:
    with pytest.raises(InvalidInput):
        check(url(text), policy(hosts=["x.example"]))


@pytest.mark.parametrize(
    ("address", "port", "fields", "rule"),
    [
        ("8.8.8.8", 443, {}, None),
        ("8.8.8.8", 25, {}, "ports"),
        ("10.0.0.7", 25, {}, None),
        ("10.0.0.7", 25, {"networks": ["10.1.0.0/16"]}, "networks"),
        ("127.0.0.1", 80, {"networks": ["127.0.0.0/8"]}, None),
        ("2001:4860:4860::8888", 25, {}, "ports"),
    ],
)
def test_address_of_a_connection_is_bounded(
    address: str, port: int, fields: dict[str, Any], rule: str | None
) -> None:
    def connect() -> None:
        check_address(ip_address(address), port, policy(**fields), egress=INSTALLATION)

    if rule is None:
        connect()
        return
    error = refusal(connect)

    assert isinstance(error, NotAllowed)
    assert error.rule == rule
    assert address not in error.reason
