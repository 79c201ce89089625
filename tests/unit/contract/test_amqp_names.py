"""Routing keys and lanes: how a message finds its way, and comes apart again."""

import pytest

from harebell.contract.amqp_names import (
    Lane,
    lane_of,
    message_key,
    message_type,
    split_key,
    work_key,
)


@pytest.mark.parametrize(
    ("priorities", "lane"),
    [(range(1, 4), Lane.LOW), (range(4, 8), Lane.NORMAL), (range(8, 11), Lane.HIGH)],
)
def test_a_priority_has_its_lane(priorities: range, lane: Lane) -> None:
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
def test_a_routing_key_comes_apart_after_the_tenant(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key) == parts


def test_keys_and_types_are_spelt_in_one_way() -> None:
    assert message_key("acme", "schedule.put") == "acme.schedule.put"
    assert work_key("reports", Lane.HIGH) == "reports.high"
    assert message_type("schedule.put") == "harebell.schedule.put.v1"
