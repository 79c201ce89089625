"""Derived ids. They never change, because rows, tickets and records of targets contain them."""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import (
    RunKey,
    dead_message_id,
    dead_run_id,
    imported_dead_letter_id,
    older_dead_message_id,
    older_dead_run_id,
    run_id,
    schedule_id,
    schedule_id_of_request,
)

SCHEDULE: Final = schedule_id("acme", "daily-sales")
RUN: Final = run_id(SCHEDULE, datetime(2026, 11, 20, 14, tzinfo=UTC))

PINNED: Final = [
    "a0a17022-1be1-5e4f-845b-19b1338e5dcb",
    "7db4c79f-c8af-5d19-9547-1f6b6d90dcc9",
    "465e637b-649e-5555-8908-8847754bbe5e",
    "a0a17022-1be1-5e4f-845b-19b1338e5dcb@20261120T140000000Z",
    "2c749ae9-9a43-558f-82aa-fec6680dbc7b",
    "a7f35c31-531c-5211-aec6-7a610282de6d",
    "b4a0e3c2-b2e5-5a23-8199-01cc2c374733",
    "328b1bd8-5e60-50de-ade4-8e41c408c237",
    "ecdf77dd-9080-564d-906d-7637fe99697c",
]


def test_ids_never_change() -> None:
    assert [
        str(SCHEDULE),
        str(schedule_id_of_request("acme", "ops-1", None)),
        str(schedule_id_of_request("acme", "ops-1", 0)),
        RUN,
        str(older_dead_run_id(RUN, 1)),
        str(older_dead_message_id("harebell.intake", "m-1", b"{}")),
        str(dead_run_id("acme", RUN, 1)),
        str(dead_message_id("acme", "harebell.intake", message_id="m-1", body=b"{}")),
        str(imported_dead_letter_id(dead_run_id("acme", RUN, 1))),
    ] == PINNED


def test_schedule_ids_differ_by_tenant_key_request_and_index() -> None:
    ids = {
        schedule_id("acme", "a"),
        schedule_id("globex", "a"),
        schedule_id_of_request("acme", "a", None),
        schedule_id_of_request("acme", "a", 0),
        schedule_id_of_request("acme", "a", 1),
    }

    assert len(ids) == 5


def test_dead_messages_without_a_message_id_have_ids_of_their_bodies() -> None:
    first, second = (
        dead_message_id("acme", "harebell.intake", message_id=None, body=body)
        for body in (b"{", b"[")
    )

    assert first != second


@pytest.mark.requirement("P4")
def test_ids_of_dead_letters_differ_by_tenant_and_from_imports() -> None:
    ids = {
        dead_run_id("acme", RUN, 0),
        dead_run_id("globex", RUN, 0),
        imported_dead_letter_id(dead_run_id("acme", RUN, 0)),
        dead_message_id("acme", "harebell.intake", message_id="m-1", body=b"{}"),
        dead_message_id("globex", "harebell.intake", message_id="m-1", body=b"{}"),
    }

    assert len(ids) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "daily-sales",
        str(SCHEDULE),
        f"{SCHEDULE}@",
        f"{SCHEDULE}@20261120T140000Z",
        f"{SCHEDULE}@20261120T140000000",
        f"{SCHEDULE}@20261320T140000000Z",
        f"{str(SCHEDULE).upper()}@20261120T140000000Z",
        f"{RUN} ",
        f"{RUN}\n",
    ],
)
def test_run_key_rejects_another_form_of_a_run_id(text: str) -> None:
    with pytest.raises(InvalidInput, match="must have the form"):
        RunKey.parse(text)


def test_run_ids_differ_in_a_repeated_hour() -> None:
    first = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    ids = [run_id(SCHEDULE, each) for each in (first, first.replace(fold=1))]

    assert ids == [f"{SCHEDULE}@20261101T053000000Z", f"{SCHEDULE}@20261101T063000000Z"]


def test_run_keys_sort_by_time_first() -> None:
    low, high = UUID(int=1), UUID(int=2)
    early, late = (datetime(2026, 11, day, tzinfo=UTC) for day in (20, 21))

    assert sorted([RunKey(late, low), RunKey(early, high), RunKey(early, low)]) == [
        RunKey(early, low),
        RunKey(early, high),
        RunKey(late, low),
    ]
