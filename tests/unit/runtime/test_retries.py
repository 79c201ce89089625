"""The wait between two tries."""

import pytest

from harebell.runtime.retries import INITIAL_BACKOFF, MAX_BACKOFF, backoff_delay


@pytest.mark.parametrize(
    ("tries", "longest"), [(0, 0.1), (1, 0.2), (3, 0.8), (6, 5.0), (100, 5.0), (10_000, 5.0)]
)
def test_delay_doubles_up_to_its_bound_and_is_at_least_half_of_it(
    tries: int, longest: float
) -> None:
    delays = [backoff_delay(tries) for _ in range(200)]

    assert longest == min(INITIAL_BACKOFF * 2 ** min(tries, 20), MAX_BACKOFF)
    assert longest / 2 <= min(delays)
    assert max(delays) <= longest


def test_delays_of_several_processes_spread_over_half_of_the_longest_one() -> None:
    delays = [backoff_delay(100) for _ in range(1_000)]

    tenths = {int((delay - MAX_BACKOFF / 2) / (MAX_BACKOFF / 2) * 10) for delay in delays}
    assert tenths >= set(range(10))
