"""Routing keys, lanes and message types: their form, and how a service reads them."""

import pytest

from harebell.contract.amqp_names import (
    Lane,
    check_version,
    lane_of,
    message_key,
    message_type,
    split_key,
    work_key,
)
from harebell.contract.errors import InvalidInput


@pytest.mark.parametrize(
    ("priorities", "lane"),
    [(range(1, 4), Lane.LOW), (range(4, 8), Lane.NORMAL), (range(8, 11), Lane.HIGH)],
)
def test_lane_of_returns_the_lane_of_a_priority(priorities: range, lane: Lane) -> None:
    assert {lane_of(priority) for priority in priorities} == {lane}


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("acme.schedule.put", ("acme", "schedule.put")),
        ("acme.dlq.replay", ("acme", "dlq.replay")),
        ("acme", ("acme", "")),
        (".schedule.put", ("", "schedule.put")),
        ("", ("", "")),
    ],
)
def test_split_key_splits_a_routing_key_after_the_tenant(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key) == parts


def test_routing_keys_and_types_have_one_form() -> None:
    assert message_key("acme", "schedule.put") == "acme.schedule.put"
    assert work_key("reports", Lane.HIGH) == "reports.high"
    assert message_type("schedule.put") == "harebell.schedule.put.v1"


@pytest.mark.parametrize(
    "type_", [None, "", "harebell.schedule.put.v1", "acme.report.v9", "harebell.report", "text"]
)
def test_check_version_accepts_version_1_and_types_of_other_systems(type_: str | None) -> None:
    check_version(type_)


@pytest.mark.parametrize("type_", ["harebell.schedule.put.v9", "harebell.ticket.batch.v2"])
def test_check_version_rejects_a_later_version_and_names_it(type_: str) -> None:
    with pytest.raises(InvalidInput, match=type_) as caught:
        check_version(type_)

    assert (caught.value.code, caught.value.field) == ("unknown_version", "type")
