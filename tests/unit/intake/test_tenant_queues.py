"""The intake queues that intake looks for, and the warning about tenants without a setting."""

import pytest

from harebell.intake.commands import tenant_queues
from harebell.intake.commands.tenant_queues import TenantQueues

ACME, UMBRELLA = "harebell.intake.acme", "harebell.intake.umbrella"


@pytest.mark.requirement("P6")
def test_queue_of_a_seen_tenant_is_looked_for_besides_those_of_the_settings() -> None:
    queues = TenantQueues(lambda: {"acme"})
    before = queues.names()

    queues.see(["umbrella", "acme"])

    assert before == [ACME]
    assert sorted(queues.names()) == [ACME, UMBRELLA]
    assert queues.unlikely() == {UMBRELLA}


def test_warning_names_only_found_queues_that_no_setting_names() -> None:
    configured = {"acme"}
    queues = TenantQueues(lambda: configured)
    queues.see(["acme", "umbrella"])

    assert queues.warning({ACME}) is None
    assert "The intake queues of umbrella have" in (queues.warning({ACME, UMBRELLA}) or "")
    configured.add("umbrella")
    assert queues.warning({ACME, UMBRELLA}) is None


def test_warning_names_a_few_of_many_tenants() -> None:
    queues = TenantQueues(set)
    queues.see(f"tenant-{number}" for number in range(7))

    text = queues.warning(queues.names())

    assert "tenant-4 and 2 more have" in (text or "")


def test_intake_looks_for_the_queues_of_a_bounded_number_of_seen_tenants() -> None:
    queues = TenantQueues(lambda: {"acme"})

    queues.see(f"tenant-{number}" for number in range(2 * tenant_queues.MAX_SEEN))

    assert len(queues.names()) == tenant_queues.MAX_SEEN + 1


@pytest.mark.requirement("P6")
def test_query_queue_is_looked_for_after_its_intake_queue_is_found() -> None:
    queues = TenantQueues(lambda: {"acme", "stark"}, documented=lambda: ["acme"])
    queues.see(["umbrella"])

    assert queues.query_names({"harebell.intake"}) == []
    assert sorted(queues.query_names({ACME, UMBRELLA})) == [
        "harebell.queries.acme",
        "harebell.queries.umbrella",
    ]
    assert queues.unlikely_queries() == {"harebell.queries.stark", "harebell.queries.umbrella"}
