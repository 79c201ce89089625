"""Unit tests of the registry of claimed runs."""

from tests.fakes.tickets import ticket

from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns


def claimed(number: int = 0, *, seq: int = 1, renewed_at: float = 100.0) -> ClaimedRun:
    of_run = ticket(number, seq=seq)
    return ClaimedRun(ticket=of_run, token=seq + 1, attempt=1, lease=15.0, renewed_at=renewed_at)


def test_registry_contains_the_ticket_of_a_claim_and_older_tickets() -> None:
    claimed_runs = ClaimedRuns()
    claimed_runs.add([claimed(seq=3)])

    contained = [claimed_runs.contains(ticket(seq=seq)) for seq in (1, 3, 4)]

    assert contained == [True, True, False]
    assert not claimed_runs.contains(ticket(1))


def test_registry_keeps_the_later_claim_when_the_earlier_claim_is_removed() -> None:
    claimed_runs = ClaimedRuns()
    earlier, later = claimed(seq=1), claimed(seq=3)
    claimed_runs.add([earlier])
    claimed_runs.add([later])

    claimed_runs.remove([earlier])

    assert claimed_runs.get(later.key) is later
    assert claimed_runs.is_current(later)
    assert not claimed_runs.is_current(earlier)


def test_registry_returns_the_runs_whose_leases_are_old() -> None:
    claimed_runs = ClaimedRuns()
    old, new = claimed(1, renewed_at=99.0), claimed(2, renewed_at=100.0)
    claimed_runs.add([old, new])

    assert claimed_runs.renewed_before(100.0) == [old]
    claimed_runs.remove([old])
    assert claimed_runs.renewed_before(100.0) == []
    assert len(claimed_runs) == 1
