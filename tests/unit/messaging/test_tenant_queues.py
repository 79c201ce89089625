"""The topology with one intake queue for each tenant, and its definitions file."""

import pytest

from harebell.messaging.topology.bus import (
    INTAKE,
    OTHER_COMMANDS,
    SYSTEM,
    tenant_intake_queue,
    with_tenant_queues,
)
from harebell.messaging.topology.declarations import matches
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

TENANTS = ("acme", "umbrella")


def queues_of(routing_key: str, *, exchange: str) -> list[str]:
    topology = with_tenant_queues(SYSTEM, TENANTS)
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


def test_topology_without_tenants_does_not_change() -> None:
    assert with_tenant_queues(SYSTEM, ()) == SYSTEM


def test_definitions_limit_each_tenant_and_no_service() -> None:
    definitions = definitions_file(InstallationOptions(tenants=TENANTS), lambda n: b"s" * n)

    limited = {each["name"] for each in definitions["users"] if each["limits"]}
    policies = {each["name"]: each["definition"] for each in definitions["policies"]}
    queue_policies = [each for each in definitions["policies"] if each["apply-to"] == "queues"]

    assert limited == set(TENANTS)
    assert policies["harebell-other-commands"] == {"alternate-exchange": OTHER_COMMANDS}
    assert all("max-length-bytes" in each["definition"] for each in queue_policies)
    assert definitions["parameters"][0]["value"]["max-queues"] > len(definitions["queues"])
