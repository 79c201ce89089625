"""The flows of requests to the dlq_inspector: one for each tenant."""

import pytest

from harebell.dlq_inspector.service import requesting_tenant
from harebell.messaging.accepted_messages import credit_headers
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.received_message import ReceivedMessage


def query(tenant: str) -> Delivery:
    message = ReceivedMessage(
        body=b"", routing_key=f"{tenant}.dlq.list", exchange="harebell.queries"
    )
    return Delivery(message, "harebell.dlq")


def command(tenant: str) -> Delivery:
    headers = credit_headers("harebell.control.intake.one", 7, tenant=tenant)
    message = ReceivedMessage(
        body=b"", routing_key="dlq", exchange="harebell.changes", headers=headers
    )
    return Delivery(message, "harebell.dlq")


@pytest.mark.requirement("P6")
def test_queries_and_commands_of_one_tenant_are_one_flow() -> None:
    flows = [requesting_tenant(each) for each in (query("acme"), command("acme"), query("stark"))]

    assert flows == ["acme", "acme", "stark"]


def test_command_without_a_credit_belongs_to_no_tenant() -> None:
    message = ReceivedMessage(body=b"", routing_key="dlq", exchange="harebell.changes")

    assert requesting_tenant(Delivery(message, "harebell.dlq")) == ""
