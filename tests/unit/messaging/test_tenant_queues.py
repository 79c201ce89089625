"""The topology with queues of tenants, and its definitions file."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from harebell.messaging.topology.bus import (
    DLQ,
    INTAKE,
    OTHER_COMMANDS,
    OTHER_QUERIES,
    QUERY,
    SYSTEM,
    tenant_dlq_queue,
    tenant_intake_queue,
    tenant_query_queue,
    with_query_queues,
    with_tenant_queues,
)
from harebell.messaging.topology.declarations import matches
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

TENANTS = ("acme", "umbrella")


def queues_of(routing_key: str, *, exchange: str) -> list[str]:
    topology = with_query_queues(with_tenant_queues(SYSTEM, TENANTS), TENANTS)
    return [
        each.queue
        for each in topology.bindings
        if each.exchange == exchange and matches(each.routing_key, routing_key)
    ]


@pytest.mark.requirement("P6")
def test_command_of_a_tenant_is_queued_once_in_its_own_queue() -> None:
    assert queues_of("acme.schedule.put", exchange="harebell.commands") == [
        tenant_intake_queue("acme").name
    ]


def test_other_commands_reach_the_shared_queue_through_the_alternate_exchange() -> None:
    assert queues_of("harebell.breaker.open", exchange="harebell.commands") == []
    assert queues_of("harebell.breaker.open", exchange=OTHER_COMMANDS) == [INTAKE.name]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    "verb", ["schedule.list", "schedule.get", "run.forecast", "breaker.list", "tenant.usage"]
)
def test_query_of_a_tenant_is_queued_once_in_its_own_queue(verb: str) -> None:
    assert queues_of(f"acme.{verb}", exchange="harebell.queries") == [
        tenant_query_queue("acme").name
    ]
    assert queues_of(f"stark.{verb}", exchange="harebell.queries") == []
    assert queues_of(f"stark.{verb}", exchange=OTHER_QUERIES) == [QUERY.name]


@pytest.mark.requirement("P6")
def test_query_about_dead_letters_is_queued_once_in_the_second_queue_of_its_tenant() -> None:
    assert queues_of("acme.dlq.list", exchange="harebell.queries") == [
        tenant_dlq_queue("acme").name
    ]
    assert queues_of("stark.dlq.list", exchange="harebell.queries") == []
    assert queues_of("stark.dlq.list", exchange=OTHER_QUERIES) == [DLQ.name]
    assert queues_of("dlq", exchange="harebell.changes") == [DLQ.name]


def test_topology_without_tenants_does_not_change() -> None:
    assert with_tenant_queues(SYSTEM, ()) == SYSTEM
    assert with_query_queues(SYSTEM, ()) == SYSTEM


def test_definitions_with_query_queues_set_the_alternate_exchange_and_a_bound() -> None:
    options = InstallationOptions(tenants=TENANTS, query_tenants=("acme",))

    definitions = definitions_file(options, lambda n: b"s" * n)

    policies = {each["name"]: each for each in definitions["policies"]}
    names = {each["name"] for each in definitions["queues"]}
    assert policies["harebell-other-queries"]["definition"] == {"alternate-exchange": OTHER_QUERIES}
    assert re.search(policies["harebell-other-queries"]["pattern"], "harebell.queries")
    assert not re.search(policies["harebell-other-queries"]["pattern"], OTHER_QUERIES)
    assert max_bytes(definitions["policies"], tenant_query_queue("acme").name) == 64 * 2**20
    assert max_bytes(definitions["policies"], tenant_dlq_queue("acme").name) == 64 * 2**20
    assert {tenant_query_queue("acme").name, tenant_dlq_queue("acme").name} <= names
    assert tenant_query_queue("umbrella").name not in names


def test_query_queue_needs_the_user_of_its_tenant() -> None:
    with pytest.raises(ValidationError, match="stark"):
        InstallationOptions(tenants=TENANTS, query_tenants=("stark",))


def test_definitions_limit_each_tenant_and_no_service() -> None:
    definitions = definitions_file(InstallationOptions(tenants=TENANTS), lambda n: b"s" * n)

    limited = {each["name"] for each in definitions["users"] if each["limits"]}
    policies = {each["name"]: each["definition"] for each in definitions["policies"]}
    queue_policies = [each for each in definitions["policies"] if each["apply-to"] == "queues"]

    assert limited == set(TENANTS)
    assert policies["harebell-other-commands"] == {"alternate-exchange": OTHER_COMMANDS}
    assert all("max-length-bytes" in each["definition"] for each in queue_policies)
    assert definitions["parameters"][0]["value"]["max-queues"] > len(definitions["queues"])


@pytest.mark.requirement("P10")
def test_each_operator_has_a_login_with_the_rights_of_the_shared_one() -> None:
    definitions = definitions_file(InstallationOptions(operators=("ann",)), lambda n: b"salt"[:n])

    rights = {each.pop("user"): each for each in definitions["permissions"]}
    limits = {each["name"]: each["tags"] for each in definitions["users"]}
    assert rights["harebell_operator_ann"] == rights["harebell_operator"]
    assert limits["harebell_operator_ann"] == limits["harebell_operator"]


@pytest.mark.parametrize("name", ["", "Ann", "ann lee", "-ann", "a" * 64])
def test_name_of_an_operator_is_a_simple_name(name: str) -> None:
    with pytest.raises(ValidationError):
        InstallationOptions(operators=(name,))


@pytest.mark.requirement("P11")
def test_quota_of_bytes_bounds_the_intake_queue_of_its_tenant() -> None:
    tenants = ("acme", "acme-2", "umbrella", "initech")
    sizes = {"acme": 1024, "umbrella": None, "initech": 2**50}
    options = InstallationOptions(tenants=tenants, queued_bytes=sizes)

    policies = definitions_file(options, lambda n: b"s" * n)["policies"]

    bounds = {each: max_bytes(policies, tenant_intake_queue(each).name) for each in tenants}
    assert bounds == {"acme": 1024, "acme-2": 64 * 2**20, "umbrella": 2**30, "initech": 2**30}


def max_bytes(policies: list[dict[str, Any]], queue: str) -> int:
    """Return the bound of the policy that RabbitMQ applies: the match of the highest priority."""
    found = [
        each
        for each in policies
        if each["apply-to"] == "queues" and re.search(each["pattern"], queue)
    ]
    highest = max(each["priority"] for each in found)
    (policy,) = (each for each in found if each["priority"] == highest)
    bound: int = policy["definition"]["max-length-bytes"]
    assert policy["definition"]["overflow"] == "reject-publish"
    return bound


@pytest.mark.requirement("P1")
@pytest.mark.parametrize("tenant", ["amq", "guest", "default", "harebell", "harebell_x"])
def test_tenant_with_a_dangerous_name_gets_no_user(tenant: str) -> None:
    with pytest.raises(ValidationError, match="must not be one of"):
        InstallationOptions(tenants=("acme", tenant))
