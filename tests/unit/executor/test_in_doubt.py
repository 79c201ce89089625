"""Unit tests of claims in doubt: a later ticket recovers a run, and the run starts only once."""

from uuid import UUID

from tests.fakes.tickets import NINE

from harebell.contract.ids import RunKey
from harebell.executor.claiming.claimer import MAX_IN_DOUBT, InDoubtClaims
from harebell.storage.runs.claims import ClaimKey


def claim(number: int = 1) -> ClaimKey:
    return ClaimKey(
        key=RunKey(NINE, UUID(int=number)),
        seq=1,
        version=1,
        override=None,
        lease=15.0,
        due_at=NINE,
    )


def test_claim_is_accepted_and_not_recovered_when_it_was_never_in_doubt() -> None:
    in_doubt = InDoubtClaims()

    assert in_doubt.accept_claim(claim())
    assert not in_doubt.accept_recovered(claim())


def test_claim_in_doubt_is_recovered_once() -> None:
    in_doubt = InDoubtClaims()
    in_doubt.add([claim()])

    recovered = [in_doubt.accept_recovered(claim()) for _ in range(3)]

    assert recovered == [True, False, False]


def test_claim_in_doubt_is_not_recovered_after_a_later_ticket_has_claimed_its_run() -> None:
    in_doubt = InDoubtClaims()
    in_doubt.add([claim()])

    assert in_doubt.accept_claim(claim())
    assert not in_doubt.accept_recovered(claim())


def test_late_response_of_a_claim_is_not_accepted_after_the_recovery_of_its_run() -> None:
    in_doubt = InDoubtClaims()
    in_doubt.add([claim()])
    recovered = in_doubt.accept_recovered(claim())
    in_doubt.add([claim()])  # another claim of the run has no response

    assert recovered
    assert not in_doubt.accept_claim(claim())
    assert not in_doubt.accept_recovered(claim())


def test_oldest_claim_is_dropped_above_the_maximum() -> None:
    in_doubt = InDoubtClaims()
    in_doubt.add(map(claim, range(MAX_IN_DOUBT + 1)))

    assert not in_doubt.accept_recovered(claim(0))
    assert in_doubt.accept_recovered(claim(MAX_IN_DOUBT))
