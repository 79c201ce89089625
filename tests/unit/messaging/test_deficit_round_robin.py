"""Deficit round robin: the share of each flow, the order within a flow, and blocked flows."""

from hypothesis import given
from hypothesis import strategies as st

from harebell.messaging.deficit_round_robin import DeficitRoundRobin

SIZES = st.integers(min_value=1, max_value=5_000)
PUSHES = st.lists(st.tuples(st.sampled_from("abc"), SIZES), max_size=60)


def admit_all(flow: str, taken: int, size: int) -> bool:
    del flow, taken, size
    return True


def admit_open(flow: str, taken: int, size: int) -> bool:
    del taken, size
    return flow == "open"


def admit_30_bytes(flow: str, taken: int, size: int) -> bool:
    del flow
    return taken + size <= 30


def drain(flows: DeficitRoundRobin[str], *, limit: int = 1, max_bytes: int = 1) -> list[str]:
    taken: list[str] = []
    while batch := flows.take(limit=limit, max_bytes=max_bytes, admits=admit_all):
        taken += batch
    return taken


def test_flow_that_arrives_is_served_before_the_next_item_of_a_flood() -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=100)
    for n in range(50):
        flows.push("flood", f"flood-{n}", 100)
    first = flows.take(limit=1, max_bytes=100, admits=admit_all)
    flows.push("small", "small", 10)

    assert first == ["flood-0"]
    assert flows.take(limit=1, max_bytes=100, admits=admit_all) == ["small"]


def test_flows_share_the_bytes_and_not_the_items() -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=100)
    for n in range(20):
        flows.push("large", f"L{n}", 100)
    for n in range(200):
        flows.push("small", f"s{n}", 10)

    taken = flows.take(limit=110, max_bytes=2_000, admits=admit_all)

    assert abs(sum(each[0] == "L" for each in taken) - 10) <= 1
    assert abs(sum(each[0] == "s" for each in taken) - 100) <= 10


def test_item_larger_than_a_batch_is_taken_between_the_items_of_a_flood() -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=10)
    flows.push("large", "large", 1_000)
    for n in range(2_000):
        flows.push("flood", f"flood-{n}", 10)

    position = drain(flows, limit=10, max_bytes=100).index("large")

    assert 50 <= position <= 200


def test_blocked_flow_delays_no_other_flow_and_keeps_its_items() -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=100)
    flows.push("blocked", "later", 10)
    flows.push("open", "now", 10)

    taken = flows.take(limit=9, max_bytes=900, admits=admit_open)

    assert taken == ["now"]
    assert drain(flows) == ["later"]


def test_bytes_of_one_call_count_for_the_window_of_a_flow() -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=100)
    for n in range(9):
        flows.push("a", str(n), 10)

    taken = flows.take(limit=9, max_bytes=900, admits=admit_30_bytes)

    assert taken == ["0", "1", "2"]


@given(pushes=PUSHES, limit=st.integers(1, 9), max_bytes=st.integers(1, 9_000))
def test_each_item_is_taken_once_and_each_flow_keeps_its_order(
    pushes: list[tuple[str, int]], limit: int, max_bytes: int
) -> None:
    flows: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=64)
    for n, (flow, size) in enumerate(pushes):
        flows.push(flow, f"{flow}{n:03}", size)

    taken = drain(flows, limit=limit, max_bytes=max_bytes)

    assert sorted(taken, key=lambda each: each[1:]) == [
        f"{flow}{n:03}" for n, (flow, _) in enumerate(pushes)
    ]
    for flow in "abc":
        own = [each for each in taken if each[0] == flow]
        assert own == sorted(own)
