"""The topology with queues of tenants, and its definitions file."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from harebell.contract.amqp_names import EVENTS, tenant_exchange
from harebell.contract.commands import COMMANDS
from harebell.contract.queries import DEAD_LETTER_QUERIES, QUERIES
from harebell.messaging.topology.bus import (
    DLQ,
    INTAKE,
    QUERY,
    SYSTEM,
    tenant_dlq_queue,
    tenant_intake_queue,
    tenant_of_queue,
    tenant_query_queue,
    tenant_topology,
)
from harebell.messaging.topology.declarations import Topology, matches
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

TENANTS = ("acme", "umbrella")


def queues_of(routing_key: str, *, exchange: str) -> list[str]:
    """Return the queues that receive a message, also through alternate exchanges."""
    topology = SYSTEM
    for tenant in TENANTS:
        topology += tenant_topology(tenant)
    found = [
        each.queue
        for each in topology.bindings
        if each.exchange == exchange
        and (matches(each.routing_key, routing_key) or kind_of(topology, exchange) == "fanout")
    ]
    alternates = [each.alternate for each in topology.exchanges if each.name == exchange]
    if not found and alternates and alternates[0]:
        return queues_of(routing_key, exchange=alternates[0])
    return found


def kind_of(topology: Topology, exchange: str) -> str:
    return next(each.kind for each in topology.exchanges if each.name == exchange)


@pytest.mark.requirement("P1", "P6")
@pytest.mark.parametrize("verb", [*COMMANDS, "schedule.putt", "", "x.y.z"])
def test_exchange_of_a_tenant_passes_each_other_message_to_its_intake_queue(verb: str) -> None:
    for owner in TENANTS:  # the service then refuses the key of another tenant
        found = queues_of(f"{owner}.{verb}", exchange=tenant_exchange("acme"))
        assert found == [tenant_intake_queue("acme").name]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("verb", QUERIES)
def test_exchange_of_a_tenant_passes_each_query_to_one_queue_of_the_tenant(verb: str) -> None:
    make_queue = tenant_dlq_queue if verb in DEAD_LETTER_QUERIES else tenant_query_queue

    found = queues_of(f"acme.{verb}", exchange=tenant_exchange("acme"))

    assert found == [make_queue("acme").name]


def test_requests_to_the_shared_exchanges_stay_in_the_shared_queues() -> None:
    assert queues_of("acme.schedule.put", exchange="harebell.commands") == [INTAKE.name]
    assert queues_of("acme.schedule.list", exchange="harebell.queries") == [QUERY.name]
    assert queues_of("acme.dlq.list", exchange="harebell.queries") == [DLQ.name]
    assert queues_of("dlq", exchange="harebell.changes") == [DLQ.name]


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("queue", "owner"),
    [
        ("harebell.intake.acme", "acme"),
        ("harebell.queries.acme-2", "acme-2"),
        ("harebell.dlq.acme", "acme"),
        ("harebell.intake", None),
        ("harebell.dlq", None),
        ("acme.events", None),
    ],
)
def test_queue_names_its_tenant(queue: str, owner: str | None) -> None:
    assert tenant_of_queue(queue) == owner


def test_policy_gives_a_tenant_queues_for_replies_and_events() -> None:
    queues = {"acme.replies": (), "acme.events": ("run.*", "schedule.#")}
    options = InstallationOptions(tenants=TENANTS, tenant_queues={"acme": queues})

    definitions = definitions_file(options, lambda n: b"s" * n)

    bound = {
        (each["routing_key"], each["destination"])
        for each in definitions["bindings"]
        if each["source"] == EVENTS and each["destination"].startswith("acme.")
    }
    assert bound == {("acme.run.*", "acme.events"), ("acme.schedule.#", "acme.events")}
    assert {"acme.replies", "acme.events"} <= {each["name"] for each in definitions["queues"]}
    policies = {each["name"]: each for each in definitions["policies"]}
    assert re.search(policies["harebell-tenant-acme"]["pattern"], "acme.replies")
    assert max_bytes(definitions["policies"], tenant_query_queue("acme").name) == 64 * 2**20


@pytest.mark.requirement("P1")
def test_only_a_declaring_tenant_may_configure_anything() -> None:
    options = InstallationOptions(tenants=TENANTS, declaring=("umbrella",))

    definitions = definitions_file(options, lambda n: b"s" * n)

    rights = {each["user"]: each for each in definitions["permissions"]}
    assert rights["acme"]["configure"] == ""
    assert re.search(rights["umbrella"]["configure"], "umbrella.answers")
    assert not re.search(rights["umbrella"]["configure"], "umbrella-2.answers")
    [limit] = definitions["parameters"]
    assert limit["value"]["max-queues"] == len(definitions["queues"]) + 1_000 + 500


def test_tenant_that_declares_needs_a_user() -> None:
    with pytest.raises(ValidationError, match="stark"):
        InstallationOptions(tenants=TENANTS, declaring=("stark",))


def test_definitions_limit_each_tenant_and_no_service() -> None:
    definitions = definitions_file(InstallationOptions(tenants=TENANTS), lambda n: b"s" * n)

    limited = {each["name"] for each in definitions["users"] if each["limits"]}
    policies = {each["name"]: each["definition"] for each in definitions["policies"]}
    queue_policies = [each for each in definitions["policies"] if each["apply-to"] == "queues"]

    assert limited == set(TENANTS)
    assert policies["harebell-tenant-acme"]["max-length-bytes"] == 256 * 2**20
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
