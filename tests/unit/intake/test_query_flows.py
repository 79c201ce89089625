"""The flows of queries in intake: the queue of a tenant, or a tenant of the shared queue."""

import pytest

from harebell.intake.service import (
    MAX_CONCURRENT_QUERIES,
    MAX_TENANT_QUERIES,
    max_queries,
    query_flow,
)
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.topology.bus import QUERY, tenant_query_queue


def query(tenant: str, queue: str = QUERY.name) -> Delivery:
    message = ReceivedMessage(
        body=b"", routing_key=f"{tenant}.run.list", exchange="harebell.queries"
    )
    return Delivery(message, queue)


@pytest.mark.requirement("P6")
def test_tenants_of_the_shared_queue_have_different_flows() -> None:
    acme, stark = query_flow(query("acme")), query_flow(query("stark"))

    assert acme != stark
    assert max_queries(acme) < MAX_CONCURRENT_QUERIES


def test_queue_of_a_tenant_is_one_flow_with_fewer_places() -> None:
    queue = tenant_query_queue("acme").name

    assert query_flow(query("acme", queue)) == queue
    assert max_queries(queue) == MAX_TENANT_QUERIES
