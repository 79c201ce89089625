"""The counts of tenants before a service stores them."""

from harebell.domain import usage_counts
from harebell.domain.usage_counts import UsageCounts, UsageKey

PUTS = UsageKey("acme", usage_counts.PUTS)


def test_counts_are_summed_by_key_and_taken_once() -> None:
    counts = UsageCounts()
    refused = PUTS._replace(code="quota_exceeded")

    counts.add(PUTS, 3)
    counts.add(PUTS)
    counts.add(refused, 2)

    assert counts.take() == {PUTS: 4, refused: 2}
    assert counts.take() == {}


def test_nothing_is_stored_for_a_number_of_zero() -> None:
    counts = UsageCounts()

    counts.add(PUTS, 0)

    assert (counts.take(), counts.dropped) == ({}, 0)


def test_key_beyond_the_bound_is_dropped_and_known_keys_still_count() -> None:
    counts = UsageCounts()
    for number in range(usage_counts.MAX_KEYS):
        counts.add(UsageKey(f"tenant-{number}", usage_counts.PUTS))

    counts.add(UsageKey("one-more", usage_counts.PUTS), 5)
    counts.add(UsageKey("tenant-0", usage_counts.PUTS))

    taken = counts.take()
    assert (len(taken), counts.dropped) == (usage_counts.MAX_KEYS, 5)
    assert taken[UsageKey("tenant-0", usage_counts.PUTS)] == 2
