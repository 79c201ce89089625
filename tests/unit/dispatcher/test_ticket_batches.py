"""Which tickets travel together, and what a bundle says of them."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.fakes.tickets import NINE, after, crowd, routed, ticket

from harebell.contract import amqp_names
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode_model, encode, encode_all
from harebell.contract.ticket import TICKET_BATCH
from harebell.messaging.ticket_batches import (
    MAX_BYTES,
    MAX_TICKETS,
    TicketHeader,
    parse_ticket_headers,
)
from harebell.messaging.ticket_messages import to_delay_queues, to_one_delay_queue, to_work_queues

TICKET: dict[str, Any] = orjson.loads(encode(ticket()))
WRONG: list[dict[str, Any]] = [
    {"schedule_id": "daily-sales"},
    {"schedule_id": 7},
    {"scheduled_for": "tomorrow"},
    {"scheduled_for": "0001-01-01T00:00:00+10:00"},
    {"due_at": "2026-11-20T09:00:00"},
    {"due_at": 1700000000},
    {"due_at": None},
    {"seq": "1"},
    {"seq": True},
    {"pool": None},
    {"pool": "x" * 300},
    {"pool": "a.b"},
    {"lane": "fast"},
    {"lane": []},
    {"priority": 5.5},
]


def test_what_was_bundled_is_read_again_whole() -> None:
    tickets = [ticket(number, filling=number) for number in range(3)]

    (bundle,) = to_delay_queues(map(TicketHeader.of, tickets), NINE)

    assert decode_model(TICKET_BATCH, bundle.body) == tickets
    assert parse_ticket_headers(bundle.body) == [TicketHeader.of(each) for each in tickets]


def test_fields_that_routing_does_not_know_travel_along() -> None:
    (arrived,) = parse_ticket_headers(
        orjson.dumps([TICKET | {"of_the_next_version": [1, 2.5, None]}])
    )

    assert orjson.loads(arrived.raw)["of_the_next_version"] == [1, 2.5, None]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1",
        b"{}",
        b"null",
        b"[1]",
        b"[null]",
        b"[{}]",
        *(orjson.dumps([TICKET | wrong]) for wrong in WRONG),
    ],
)
def test_what_is_not_a_bundle_is_malformed(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_ticket_headers(body)


@pytest.mark.parametrize(
    ("seconds", "exchange", "key"),
    [
        (-3600, amqp_names.DUE, amqp_names.DUE_KEY),
        (3.6, amqp_names.DUE, amqp_names.DUE_KEY),
        (3.7, amqp_names.DELAY, "1500"),
        (84, amqp_names.DELAY, "80726"),
        (86_400, amqp_names.DELAY, "900000"),
    ],
)
def test_a_wait_is_made_by_the_longest_tier_that_is_over_in_time(
    seconds: float, exchange: str, key: str
) -> None:
    (bundle,) = to_delay_queues([routed(due_at=after(seconds))], NINE)

    assert (bundle.exchange, bundle.routing_key) == (exchange, key)


def test_what_is_overdue_travels_together_however_long_it_is() -> None:
    overdue = [routed(hours, NINE - timedelta(hours=hours)) for hours in range(9)]

    assert len(to_delay_queues(overdue, NINE)) == 1


def test_the_earliest_ticket_of_a_bundle_decides_how_long_it_waits() -> None:
    soon, sooner = after(3.75), after(3.6)

    (bundle,) = to_delay_queues([routed(1, soon), routed(2, sooner)], NINE)

    assert bundle.exchange == amqp_names.DUE


def test_what_is_due_together_keeps_its_order() -> None:
    tickets = [TicketHeader.of(ticket(seq=seq)) for seq in (3, 1, 2)]

    (bundle,) = to_delay_queues(tickets, NINE)

    assert list(bundle.tickets) == tickets


def test_a_bundle_holds_only_so_many_tickets_and_so_many_bytes() -> None:
    small = crowd(MAX_TICKETS + 1)
    large = [TicketHeader.of(ticket(number, filling=60_000)) for number in range(9)]

    assert [len(bundle.tickets) for bundle in to_delay_queues(small, NINE)] == [MAX_TICKETS, 1]
    assert all(len(bundle.body) <= MAX_BYTES for bundle in to_delay_queues(large, NINE))
    assert [len(bundle.tickets) for bundle in to_delay_queues(large, NINE)] == [4, 4, 1]


@pytest.mark.requirement("S21")
def test_work_goes_to_its_pool_and_lane_with_the_most_urgent_first() -> None:
    tickets = [
        routed(1, pool="mail", priority=4),
        routed(2, pool="default", priority=5),
        routed(3, pool="mail", priority=7),
        routed(4, pool="mail", priority=9),
    ]

    bundles = {bundle.routing_key: bundle for bundle in to_work_queues(tickets, 20)}

    assert set(bundles) == {"default.normal", "mail.normal", "mail.high"}
    assert [each.priority for each in bundles["mail.normal"].tickets] == [7, 4]
    assert all(bundle.exchange == amqp_names.WORK for bundle in bundles.values())


def test_a_work_bundle_is_bounded_by_tickets() -> None:
    assert [len(bundle.tickets) for bundle in to_work_queues(crowd(45), 20)] == [20, 20, 5]


def test_circling_is_by_one_tier_whatever_the_time() -> None:
    (bundle,) = to_one_delay_queue([routed(1, after(-60)), routed(2, after(60))], 5045)

    assert (bundle.exchange, bundle.routing_key) == (amqp_names.DELAY, "5045")


def test_the_same_tickets_make_the_same_message_id() -> None:
    (first,), (second,) = to_delay_queues(crowd(3), NINE), to_delay_queues(crowd(3), NINE)
    (fewer,) = to_delay_queues(crowd(2), NINE)

    assert first.message_id == second.message_id != fewer.message_id


def test_a_bundle_is_a_plain_array_of_tickets() -> None:
    (bundle,) = to_delay_queues([routed()], NINE)

    assert bundle.body == encode_all([ticket()])
