"""The rule about senders: the verified login, the route and the reply queue."""

import pytest

from harebell.contract.errors import NotAllowed, Rejected
from harebell.domain.event_budget import EVENTS_PER_SECOND, MAX_BURST, MAX_TENANTS, EventBudget
from harebell.domain.reply_queue import can_refuse_to, can_reply_to, check_reply_to
from harebell.domain.sender import (
    FOREIGN_ROUTE,
    NOT_YOUR_TENANT,
    UNKNOWN_TENANT,
    IdentityMode,
    Route,
    SenderPolicy,
    check_route,
    identify,
)

COMMANDS = "harebell.commands"
VERIFIED = SenderPolicy(logins_of=lambda tenant: {tenant, f"{tenant}_ci"})
BY_KEY = SenderPolicy(mode=IdentityMode.ROUTING_KEY)


def route(key: str, user_id: str | None) -> Route:
    return Route(exchange=COMMANDS, routing_key=key, user_id=user_id)


@pytest.mark.requirement("P1", "P10")
@pytest.mark.parametrize("login", ["acme", "acme_ci", "harebell_operator"])
def test_login_of_the_tenant_or_of_an_operator_is_the_sender(login: str) -> None:
    sender = identify(route("acme.schedule.put", login), VERIFIED)

    assert (sender.login, sender.tenant) == (login, "acme")
    assert sender.is_operator is (login == "harebell_operator")


@pytest.mark.requirement("P1", "P2")
@pytest.mark.parametrize(
    ("key", "user_id"),
    [
        ("umbrella.schedule.put", "acme"),
        ("acme.schedule.put", None),
        ("acme.schedule.put", ""),
        ("acme.schedule.put", "Acme"),
        ("harebell.breaker.open", "acme"),
        ("harebell.breaker.open", "harebell"),
        ("harebell.breaker.open", None),
        ("Not A Tenant.schedule.put", "acme"),
        ("", "acme"),
    ],
)
def test_login_of_another_owner_is_refused(key: str, user_id: str | None) -> None:
    with pytest.raises(NotAllowed) as refused:
        identify(route(key, user_id), VERIFIED)

    assert (refused.value.code, refused.value.field) == (NOT_YOUR_TENANT, "user_id")


@pytest.mark.requirement("P2")
def test_operator_gives_the_orders_of_operators() -> None:
    sender = identify(route("harebell.breaker.open", "harebell_operator"), VERIFIED)

    assert sender.is_operator


def test_routing_key_names_the_tenant_where_no_sender_is_verified() -> None:
    assert identify(route("acme.schedule.put", None), BY_KEY).login is None
    assert identify(route("acme.schedule.put", "guest"), BY_KEY).login == "guest"
    assert identify(route("A.schedule.put", None), BY_KEY).tenant == UNKNOWN_TENANT
    assert identify(route("harebell.breaker.open", None), BY_KEY).is_operator


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    "taken",
    [
        Route(exchange="acme.x", routing_key="acme.schedule.put"),
        Route(exchange="harebell.events", routing_key="acme.schedule.put"),
        Route(exchange="", routing_key="acme.schedule.put"),
        Route(exchange=COMMANDS, routing_key="acme.schedule.put", was_dead_lettered=True),
    ],
)
def test_message_of_another_route_is_refused(taken: Route) -> None:
    check_route(route("acme.schedule.put", None), COMMANDS)
    with pytest.raises(NotAllowed) as refused:
        check_route(taken, COMMANDS)

    assert refused.value.code == FOREIGN_ROUTE


@pytest.mark.requirement("P3")
@pytest.mark.parametrize(
    ("queue", "verified", "by_key"),
    [
        ("amq.rabbitmq.reply-to", True, True),
        ("amq.rabbitmq.reply-to.g1h2AA.token", True, True),
        ("acme.answers", True, True),
        ("amq.gen-abc", False, True),
        ("amq.rabbitmq.reply-tox", False, False),
        ("amq.other", False, False),
        ("umbrella.answers", False, False),
        ("acme", False, False),
        ("acmex.answers", False, False),
        ("orders", False, False),
        ("harebell.ticker", False, False),
    ],
)
def test_reply_goes_only_to_direct_reply_or_a_queue_of_the_tenant(
    queue: str, *, verified: bool, by_key: bool
) -> None:
    assert can_reply_to(queue, "acme", IdentityMode.VERIFIED) is verified
    assert can_reply_to(queue, "acme", IdentityMode.ROUTING_KEY) is by_key


@pytest.mark.requirement("P3")
@pytest.mark.parametrize("tenant", ["harebell", "amq"])
def test_tenant_with_a_reserved_name_owns_no_queue(tenant: str) -> None:
    assert not can_reply_to(f"{tenant}.ticker", tenant, IdentityMode.ROUTING_KEY)


def test_message_without_a_reply_queue_is_valid() -> None:
    check_reply_to(None, "acme", IdentityMode.VERIFIED)
    check_reply_to("", "acme", IdentityMode.VERIFIED)
    with pytest.raises(Rejected, match=r"'acme\.', not 'orders'") as refused:
        check_reply_to("orders", "acme", IdentityMode.VERIFIED)

    assert (refused.value.code, refused.value.field) == ("invalid_reply_to", "reply_to")


@pytest.mark.requirement("P3")
def test_refusal_goes_only_to_direct_reply_or_a_queue_of_the_login() -> None:
    assert can_refuse_to("amq.rabbitmq.reply-to.x", None)
    assert can_refuse_to("acme.answers", "acme")
    assert not can_refuse_to("umbrella.answers", "acme")
    assert not can_refuse_to("acme.answers", None)
    assert not can_refuse_to(".answers", "")
    assert not can_refuse_to(None, "acme")


@pytest.mark.requirement("P1")
def test_budget_of_a_tenant_refills_and_belongs_to_that_tenant() -> None:
    budget = EventBudget()

    assert budget.take("acme", MAX_BURST + 1, 0.0) == MAX_BURST
    assert budget.take("acme", 1, 0.0) == 0
    assert budget.take("umbrella", 1, 0.0) == 1
    assert budget.take("acme", MAX_BURST, 1.0) == EVENTS_PER_SECOND
    assert budget.take("acme", 2 * MAX_BURST, 1e6) == MAX_BURST


def test_number_of_budgets_is_bounded() -> None:
    budget = EventBudget()
    for number in range(MAX_TENANTS + 10):
        budget.take(f"t{number}", 1, 0.0)

    assert budget.tenants == MAX_TENANTS
