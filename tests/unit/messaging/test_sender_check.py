"""The check of each delivery: what a refusal counts, answers and publishes."""

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.fakes.sender_check import open_sender_check
from tests.fakes.tickets import after

from harebell.contract.amqp_names import CHANGES, COMMANDS, EVENTS, tenant_exchange
from harebell.contract.errors import Rejected
from harebell.contract.events import make_event
from harebell.domain.event_budget import MAX_BURST
from harebell.domain.sender import IdentityMode, Sender, is_service
from harebell.messaging import metrics
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.event_publisher import OutgoingEvent, RejectionEvents
from harebell.messaging.sender_check import REJECTED, SENDER, SenderCheck, is_foreign

DIRECT = "amq.rabbitmq.reply-to.token"

REPLAYER = "harebell_dlq_inspector"


def delivery(**properties: Any) -> Delivery:
    message = SimpleNamespace(
        body=b"{}",
        message_id="m-1",
        correlation_id="c-1",
        type=None,
        **{
            "exchange": COMMANDS,
            "routing_key": "acme.schedule.put",
            "user_id": "acme",
            "reply_to": None,
            "headers": {},
        }
        | properties,
    )
    return Delivery(cast("Any", message), "harebell.intake")


def check(publisher: FakePublisher, mode: IdentityMode = IdentityMode.VERIFIED) -> SenderCheck:
    clock = SimpleNamespace(now=lambda: after(0))
    replies = RecordedReplies(publisher.published)
    return open_sender_check(publisher, clock, replies=replies, mode=mode)[0]


async def refuse(publisher: FakePublisher, refused: Delivery) -> str:
    """Refuse a delivery and return the code."""
    sender_check = check(publisher)
    with pytest.raises(Rejected) as error:
        sender_check.sender_of(refused, COMMANDS)
    await sender_check.refuse(refused, error.value)
    return error.value.code


@pytest.mark.requirement("P1", "P10")
def test_verified_login_of_the_tenant_is_admitted() -> None:
    sender = check(FakePublisher()).sender_of(delivery(reply_to="acme.answers"), COMMANDS)

    assert sender == Sender(login="acme", tenant="acme", is_operator=False)


@pytest.mark.requirement("P1", "P10")
@pytest.mark.parametrize("login", ["acme", "harebell_operator"])
def test_replayed_command_has_the_sender_of_the_dead_one(login: str) -> None:
    replayed = delivery(user_id=REPLAYER, headers={SENDER: login})

    sender = check(FakePublisher()).sender_of(replayed, COMMANDS)

    assert sender == Sender(login=login, tenant="acme", is_operator=login == "harebell_operator")


@pytest.mark.requirement("P1", "P10")
@pytest.mark.parametrize(
    ("login", "headers"),
    [
        (REPLAYER, {}),
        (REPLAYER, {SENDER: "umbrella"}),  # planted in the dead letters of acme
        (REPLAYER, {SENDER: REPLAYER}),
        (REPLAYER, {SENDER: ["acme"]}),
        ("umbrella", {SENDER: "acme"}),
        (None, {SENDER: "acme"}),
    ],
)
def test_replay_proves_no_other_sender(login: str | None, headers: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        check(FakePublisher()).sender_of(delivery(user_id=login, headers=headers), COMMANDS)

    assert refused.value.code == "not_your_tenant"


@pytest.mark.requirement("P1")
@pytest.mark.parametrize("mode", IdentityMode)
@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({}, None),
        ({"routing_key": "umbrella.schedule.put"}, "not_your_tenant"),
        ({"routing_key": "umbrella.schedule.put", "user_id": "umbrella"}, "not_your_tenant"),
        ({"routing_key": "umbrella.a", "user_id": "harebell_operator"}, "not_your_tenant"),
        ({"routing_key": "harebell.breaker.open"}, "not_your_tenant"),
        ({"exchange": COMMANDS}, "foreign_route"),
        ({"exchange": tenant_exchange("umbrella")}, "foreign_route"),
    ],
)
def test_queue_of_a_tenant_decides_the_tenant_of_its_messages(
    properties: dict[str, str], code: str | None, mode: IdentityMode
) -> None:
    sent = delivery(**{"exchange": tenant_exchange("acme")} | properties)
    queued = Delivery(sent.message, "harebell.intake.acme")

    sender_check = check(FakePublisher(), mode)

    if code is None:
        assert sender_check.sender_of(queued, COMMANDS).tenant == "acme"
        return
    with pytest.raises(Rejected) as refused:
        sender_check.sender_of(queued, COMMANDS)
    assert refused.value.code == code


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    ("login", "mode", "is_accepted"),
    [
        ("harebell_ticker", IdentityMode.VERIFIED, True),
        ("own", IdentityMode.VERIFIED, True),
        ("acme", IdentityMode.VERIFIED, False),
        ("harebell_operator", IdentityMode.VERIFIED, False),
        ("harebell_operator_ann", IdentityMode.VERIFIED, False),
        (None, IdentityMode.VERIFIED, False),
        (None, IdentityMode.ROUTING_KEY, True),
    ],
)
def test_only_logins_of_services_publish_between_services(
    login: str | None, mode: IdentityMode, *, is_accepted: bool
) -> None:
    assert is_service(login, mode, "own") is is_accepted


@pytest.mark.requirement("P1")
@pytest.mark.parametrize("mode", IdentityMode)
@pytest.mark.parametrize("fault", [{"headers": {"x-death": []}}, {"exchange": "acme.x"}])
def test_foreign_route_is_refused_in_each_mode(mode: IdentityMode, fault: dict[str, Any]) -> None:
    check(FakePublisher(), mode).sender_of(delivery(), COMMANDS)
    with pytest.raises(Rejected) as refused:
        check(FakePublisher(), mode).sender_of(delivery(**fault), COMMANDS)

    assert refused.value.code == "foreign_route"


@pytest.mark.requirement("P1")
async def test_refused_sender_is_counted_and_causes_no_event() -> None:
    publisher = FakePublisher()
    counter = metrics.REFUSED_MESSAGES.labels("not_your_tenant")
    before = counter._value.get()  # noqa: SLF001  # the value has no public name

    code = await refuse(publisher, delivery(routing_key="umbrella.schedule.put"))

    assert code == "not_your_tenant"
    assert counter._value.get() == before + 1  # noqa: SLF001  # as above
    assert publisher.published == []


@pytest.mark.requirement("P1", "P3")
@pytest.mark.parametrize(
    ("user_id", "reply_to", "is_answered"),
    [
        ("acme", "acme.answers", True),
        ("acme", DIRECT, True),
        (None, DIRECT, True),
        (None, "acme.answers", False),
        ("acme", "umbrella.answers", False),
        ("acme", "harebell.ticker", False),
        ("acme", None, False),
    ],
)
async def test_refusal_is_answered_only_to_its_sender(
    user_id: str | None, reply_to: str | None, *, is_answered: bool
) -> None:
    publisher = FakePublisher()

    await refuse(
        publisher,
        delivery(routing_key="umbrella.schedule.get", user_id=user_id, reply_to=reply_to),
    )

    sent = [(each.exchange, each.routing_key) for each in publisher.published]
    assert sent == ([("", reply_to)] if is_answered else [])
    for each in publisher.published:
        assert orjson.loads(each.body)["error"]["code"] == "not_your_tenant"
        assert each.correlation_id == "c-1"


@pytest.mark.requirement("P3")
async def test_invalid_reply_queue_causes_an_event_and_no_answer() -> None:
    publisher = FakePublisher()

    code = await refuse(publisher, delivery(reply_to="umbrella.answers"))

    assert code == "invalid_reply_to"
    (published,) = publisher.published
    assert (published.exchange, published.routing_key) == (EVENTS, "acme.schedule.rejected")
    (event,) = orjson.loads(published.body)
    assert event["data"]["actor"] == "acme"
    assert event["data"]["error"]["field"] == "reply_to"


@pytest.mark.requirement("P1")
async def test_events_over_the_budget_are_counted_and_not_published() -> None:
    publisher = FakePublisher()
    before = metrics.OMITTED_EVENTS._value.get()  # noqa: SLF001  # the value has no public name
    event = make_event("acme", REJECTED, {}, id_="1", subject="x", at=after(0))
    events = [OutgoingEvent("acme", REJECTED, event)] * (MAX_BURST + 5)

    await RejectionEvents(publisher).publish(events)

    assert sum(len(orjson.loads(each.body)) for each in publisher.published) == MAX_BURST
    assert metrics.OMITTED_EVENTS._value.get() == before + 5  # noqa: SLF001  # as above


@pytest.mark.requirement("P1")
def test_accepted_commands_come_only_through_their_exchange() -> None:
    assert not is_foreign(delivery(exchange=CHANGES, user_id=None), CHANGES)
    assert is_foreign(delivery(exchange="acme.x"), CHANGES)
    assert is_foreign(delivery(exchange=CHANGES, headers={"x-death": []}), CHANGES)
