"""Tests of ticket batches: the tickets that share a message, and its bounds."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.fakes.tickets import NINE, after, header, headers, ticket

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
INVALID: list[dict[str, Any]] = [
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


def test_batch_contains_the_complete_tickets() -> None:
    tickets = [ticket(number, filling=number) for number in range(3)]

    (batch,) = to_delay_queues(map(TicketHeader.of, tickets), NINE)

    assert decode_model(TICKET_BATCH, batch.body) == tickets
    assert parse_ticket_headers(batch.body) == [TicketHeader.of(each) for each in tickets]


def test_header_keeps_the_fields_of_a_newer_version() -> None:
    (parsed,) = parse_ticket_headers(
        orjson.dumps([TICKET | {"field_of_a_newer_version": [1, 2.5, None]}])
    )

    assert orjson.loads(parsed.raw)["field_of_a_newer_version"] == [1, 2.5, None]


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
        *(orjson.dumps([TICKET | invalid]) for invalid in INVALID),
    ],
)
def test_parser_rejects_a_body_that_is_not_a_batch(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_ticket_headers(body)


@pytest.mark.parametrize(
    ("seconds", "exchange", "key"),
    [
        (-3600, amqp_names.DUE, amqp_names.DUE_KEY),
        (3.6, amqp_names.DUE, amqp_names.DUE_KEY),
        (3.7, amqp_names.DELAY, "001500"),
        (84, amqp_names.DELAY, "080726"),
        (86_400, amqp_names.DELAY, "900000"),
    ],
)
def test_batch_waits_in_the_longest_delay_queue_that_ends_in_time(
    seconds: float, exchange: str, key: str
) -> None:
    (batch,) = to_delay_queues([header(due_at=after(seconds))], NINE)

    assert (batch.exchange, batch.routing_key) == (exchange, key)


def test_overdue_tickets_share_one_batch() -> None:
    overdue = [header(hours, NINE - timedelta(hours=hours)) for hours in range(9)]

    assert len(to_delay_queues(overdue, NINE)) == 1


def test_earliest_ticket_of_a_batch_decides_the_wait() -> None:
    soon, sooner = after(3.75), after(3.6)

    (batch,) = to_delay_queues([header(1, soon), header(2, sooner)], NINE)

    assert batch.exchange == amqp_names.DUE


def test_simultaneous_tickets_keep_their_order() -> None:
    tickets = [TicketHeader.of(ticket(seq=seq)) for seq in (3, 1, 2)]

    (batch,) = to_delay_queues(tickets, NINE)

    assert list(batch.tickets) == tickets


def test_batch_has_a_maximum_of_tickets_and_bytes() -> None:
    small = headers(MAX_TICKETS + 1)
    large = [TicketHeader.of(ticket(number, filling=60_000)) for number in range(9)]

    assert [len(batch.tickets) for batch in to_delay_queues(small, NINE)] == [MAX_TICKETS, 1]
    assert all(len(batch.body) <= MAX_BYTES for batch in to_delay_queues(large, NINE))
    assert [len(batch.tickets) for batch in to_delay_queues(large, NINE)] == [4, 4, 1]


@pytest.mark.requirement("S21")
def test_work_batch_has_one_pool_and_lane_and_the_highest_priority_first() -> None:
    tickets = [
        header(1, pool="mail", priority=4),
        header(2, pool="default", priority=5),
        header(3, pool="mail", priority=7),
        header(4, pool="mail", priority=9),
    ]

    batches = {batch.routing_key: batch for batch in to_work_queues(tickets, 20)}

    assert set(batches) == {"default.normal", "mail.normal", "mail.high"}
    assert [each.priority for each in batches["mail.normal"].tickets] == [7, 4]
    assert all(batch.exchange == amqp_names.WORK for batch in batches.values())


@pytest.mark.requirement("S21", "S43")
def test_late_ticket_is_before_later_tickets_of_a_higher_priority() -> None:
    tickets = [
        header(number, after(due_in), priority=priority)
        for number, due_in, priority in ((1, 16, 7), (2, 0, 4), (3, 14, 7))
    ]

    (work,) = to_work_queues(tickets, 20)
    (overdue,) = to_delay_queues(tickets, after(16))

    assert [each.due_at for each in work.tickets] == [after(14), after(0), after(16)]
    assert [each.due_at for each in overdue.tickets] == [after(14), after(0), after(16)]


def test_work_batch_has_a_maximum_of_tickets() -> None:
    assert [len(batch.tickets) for batch in to_work_queues(headers(45), 20)] == [20, 20, 5]


def test_deferred_tickets_share_one_delay_queue() -> None:
    (batch,) = to_one_delay_queue([header(1, after(-60)), header(2, after(60))], 5045)

    assert (batch.exchange, batch.routing_key) == (amqp_names.DELAY, "005045")


def test_same_tickets_have_the_same_message_id() -> None:
    (first,), (second,) = to_delay_queues(headers(3), NINE), to_delay_queues(headers(3), NINE)
    (fewer,) = to_delay_queues(headers(2), NINE)

    assert first.message_id == second.message_id != fewer.message_id


def test_batch_is_a_json_array_of_tickets() -> None:
    (batch,) = to_delay_queues([header()], NINE)

    assert batch.body == encode_all([ticket()])
