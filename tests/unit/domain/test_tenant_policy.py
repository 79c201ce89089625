"""The tenant policies: their form, the defaults of tenants, and the rules of each field."""

from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest

from harebell.contract.errors import InvalidInput
from harebell.domain.tenant_policy import TenantPolicies

UNLIMITED = TenantPolicies.unrestricted()


def policies(document: dict[str, Any]) -> TenantPolicies:
    return TenantPolicies.parse(document)


def refused(document: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        TenantPolicies.parse(document)
    return caught.value


def test_document_without_fields_has_the_documented_defaults() -> None:
    policy = TenantPolicies.parse(None).of("acme")

    assert (policy.exchanges, policy.pools, policy.priority_max) == ((), ("default",), 10)
    assert policy.quotas.queued_bytes == 64 * 2**20
    assert policy.quotas.retry_min_wait == timedelta(milliseconds=100)
    assert policy.has_task("anything")
    assert policy.has_host("anything.example")
    assert (policy.has_port(443), policy.has_port(25)) == (True, False)
    assert policy.allowed_networks is None


def test_tenant_inherits_each_field_and_each_quota_that_it_omits() -> None:
    found = policies(
        {
            "defaults": {"pools": ["shared"], "quotas": {"schedules": 7, "dead_letters": 8}},
            "tenants": {"acme": {"hosts": ["acme.example"], "quotas": {"schedules": None}}},
        }
    )

    acme, other = found.of("acme"), found.of("umbrella")

    assert (acme.pools, acme.hosts) == (("shared",), ("acme.example",))
    assert (acme.quotas.schedules, acme.quotas.dead_letters) == (None, 8)
    assert acme.quotas.runs_per_second == 100
    assert (other.hosts, other.quotas.schedules) == (("*",), 7)


def test_second_document_keeps_nothing_of_the_first() -> None:
    first = policies({"tenants": {"acme": {"pools": ["fast"]}}})
    assert first.of("acme").has_pool("fast")
    assert first.defaults.has_pool("default")

    second = policies({"tenants": {"acme": {"tasks": ["acme.*"]}}})

    assert not second.of("acme").has_pool("fast")
    assert second.of("acme").has_pool("default")


def test_policy_of_a_tenant_stays_the_same_object() -> None:
    found = policies({"tenants": {"acme": {}}})

    assert found.of("acme") is found.of("acme")
    assert found.of("umbrella") is found.of("other")


@pytest.mark.parametrize(
    ("exchange", "is_permitted"),
    [
        ("acme.orders", True),
        ("orders", True),
        ("billing.eu", True),
        ("umbrella.orders", False),
        ("acme", False),
        ("acmex.orders", False),
        ("orders2", False),
    ],
)
def test_tenant_publishes_to_its_own_and_to_the_listed_exchanges(
    exchange: str, *, is_permitted: bool
) -> None:
    policy = policies({"tenants": {"acme": {"exchanges": ["orders", "billing.*"]}}}).of("acme")

    assert policy.may_publish("acme", exchange) is is_permitted


@pytest.mark.parametrize(
    ("host", "is_permitted"),
    [
        ("api.example", True),
        ("a.acme.example", True),
        ("acme.example", False),
        ("xacme.example", False),
        ("10.0.0.1", True),
        ("bücher.example", True),
        ("evil.example", False),
    ],
)
def test_host_must_be_listed(host: str, *, is_permitted: bool) -> None:
    hosts = ["API.example", "*.acme.example", "10.0.0.1", "xn--bcher-kva.example"]
    policy = policies({"tenants": {"acme": {"hosts": hosts}}}).of("acme")

    assert policy.has_host(host) is is_permitted


def test_private_networks_are_listed_networks() -> None:
    policy = policies({"defaults": {"networks": ["10.0.0.0/8", "fd00::/8"]}}).of("acme")

    assert policy.allowed_networks == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


def test_login_is_by_default_the_name_of_the_tenant() -> None:
    found = policies({"tenants": {"acme": {"logins": ["acme", "ci"]}, "umbrella": {}}})

    assert found.logins("acme") == {"acme", "ci"}
    assert found.logins("umbrella") == {"umbrella"}
    assert found.logins("other") == {"other"}
    assert found.logins("ci") == frozenset()


@pytest.mark.parametrize(
    ("document", "field", "code"),
    [
        ([], None, "invalid"),
        ({"tenant": {}}, "tenant", "unknown_field"),
        ({"defaults": {"exchange": []}}, "defaults.exchange", "unknown_field"),
        ({"defaults": {"logins": ["a"]}}, "defaults.logins", "invalid_login"),
        ({"tenants": {"acme": {"hosts": "a"}}}, "tenants.acme.hosts", "invalid"),
        ({"tenants": {"acme": {"hosts": ["a:1"]}}}, "tenants.acme.hosts[0]", "invalid_host"),
        ({"tenants": {"acme": {"hosts": ["a*"]}}}, "tenants.acme.hosts[0]", "invalid_host"),
        ({"tenants": {"acme": {"hosts": ["u@a"]}}}, "tenants.acme.hosts[0]", "invalid_host"),
        ({"tenants": {"acme": {"tasks": ["*a"]}}}, "tenants.acme.tasks[0]", "invalid_pattern"),
        (
            {"tenants": {"acme": {"exchanges": ["harebell.work"]}}},
            "tenants.acme.exchanges[0]",
            "reserved_exchange",
        ),
        (
            {"tenants": {"acme": {"networks": ["10.0.0.1/8"]}}},
            "tenants.acme.networks[0]",
            "invalid_network",
        ),
        ({"tenants": {"acme": {"priority_max": 11}}}, "tenants.acme.priority_max", "invalid"),
        ({"tenants": {"acme": {"priority_max": True}}}, "tenants.acme.priority_max", "invalid"),
        (
            {"tenants": {"acme": {"quotas": {"queued_bytes": "64MB"}}}},
            "tenants.acme.quotas.queued_bytes",
            "invalid_size",
        ),
        (
            {"tenants": {"acme": {"quotas": {"run": 1}}}},
            "tenants.acme.quotas.run",
            "unknown_field",
        ),
        (
            {"tenants": {"acme": {"logins": ["harebell_intake"]}}},
            "tenants.acme.logins[0]",
            "reserved_login",
        ),
        (
            {"tenants": {"acme": {"logins": ["ci"]}, "umbrella": {"logins": ["ci"]}}},
            "tenants.umbrella.logins[0]",
            "invalid_login",
        ),
        (
            {"tenants": {"acme": {"signing": [{"key": "x"}]}}},
            "tenants.acme.signing[0].secret",
            None,
        ),
        (
            {"tenants": {"acme": {"signing": [{"secret": "../x"}]}}},
            "tenants.acme.signing[0].secret",
            None,
        ),
        (
            {"tenants": {"acme": {"tls": {"key": {"secret": "k"}}}}},
            "tenants.acme.tls",
            "invalid_tls",
        ),
    ],
)
def test_fault_names_its_field(document: object, field: str | None, code: str | None) -> None:
    error = refused(document)

    assert error.field == field
    assert code is None or error.code == code
    assert error.reason.endswith(".")


@pytest.mark.parametrize("name", ["Acme", "a.b", "", "a" * 64])
def test_name_of_a_tenant_is_checked(name: str) -> None:
    assert (refused({"tenants": {name: {}}}).field or "").startswith("tenants")


@pytest.mark.parametrize("port", [0, 65_536, "80", True, None])
def test_port_is_a_number_or_every_port(port: object) -> None:
    assert (refused({"defaults": {"ports": [port]}}).field or "").startswith("defaults.ports[0]")


def test_installation_without_a_document_has_no_restriction() -> None:
    policy = UNLIMITED.of("acme")

    assert policy.may_publish("acme", "orders")
    assert policy.has_pool("vip")
    assert policy.has_port(25)
    assert policy.priority_max == 10
    assert set(policy.quotas.model_dump().values()) == {None}
    assert UNLIMITED.logins("acme") == {"acme"}


def test_production_without_a_document_permits_only_own_exchanges() -> None:
    policy = TenantPolicies.unrestricted(exchanges=()).of("acme")

    assert policy.may_publish("acme", "acme.orders")
    assert not policy.may_publish("acme", "orders")
    assert policy.has_pool("vip")


def test_delayed_exchange_belongs_to_one_tenant_that_may_publish_to_its_due_exchange() -> None:
    found = policies({"tenants": {"shop": {"delayed_exchanges": ["orders"]}, "post": {}}})

    assert found.tenant_of_delayed("orders") == "shop"
    assert found.tenant_of_delayed("orders.due") is None
    assert found.of("shop").may_publish("shop", "orders.due")
    assert not found.of("shop").may_publish("shop", "orders")
    assert not found.of("post").may_publish("post", "orders.due")
    without_file = TenantPolicies.unrestricted(exchanges=(), delayed={"orders": "shop"})
    assert without_file.tenant_of_delayed("orders") == "shop"
    assert without_file.of("shop").may_publish("shop", "orders.due")


@pytest.mark.parametrize(
    "document",
    [
        {"tenants": {"a": {"delayed_exchanges": ["x"]}, "b": {"delayed_exchanges": ["x"]}}},
        {"defaults": {"delayed_exchanges": ["x"]}},
        {"tenants": {"a": {"delayed_exchanges": ["x*"]}}},
        {"tenants": {"a": {"delayed_exchanges": ["harebell.x"]}}},
        {"tenants": {"a": {"delayed_exchanges": ["x" * 124]}}},
    ],
)
def test_delayed_exchange_without_one_clear_tenant_is_refused(document: object) -> None:
    assert "delayed_exchanges" in str(refused(document).field)
