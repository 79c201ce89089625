"""Claims whose outcome was not told: whoever asks again finds the run, and only one runs it."""

from uuid import UUID

from tests.fakes.tickets import NINE

from harebell.contract.ids import RunKey
from harebell.executor.claiming.in_doubt import MAX_DOUBTFUL, InDoubtClaims
from harebell.storage.runs.claims import ClaimKey


def wanted(number: int = 1) -> ClaimKey:
    return ClaimKey(RunKey(NINE, UUID(int=number)), 1, 1, None, 15.0, NINE)


def test_without_a_doubt_what_is_claimed_runs_and_what_is_found_to_be_mine_runs_already() -> None:
    told = InDoubtClaims()

    assert told.accept_claim(wanted())
    assert not told.accept_recovered(wanted())


def test_a_claim_that_was_not_answered_is_found_once() -> None:
    told = InDoubtClaims()
    told.add([wanted()])

    assert [told.accept_recovered(wanted()) for _ in range(3)] == [True, False, False]


def test_a_run_that_a_later_copy_has_claimed_is_not_found_again() -> None:
    told = InDoubtClaims()
    told.add([wanted()])

    assert told.accept_claim(wanted())
    assert not told.accept_recovered(wanted())


def test_a_claim_that_is_told_late_does_not_run_what_another_copy_has_found() -> None:
    told = InDoubtClaims()
    told.add([wanted()])
    found = told.accept_recovered(wanted())
    told.add([wanted()])  # and one more copy is not answered

    assert found
    assert not told.accept_claim(wanted())
    assert not told.accept_recovered(wanted())


def test_so_many_are_remembered_the_latest() -> None:
    told = InDoubtClaims()
    told.add(map(wanted, range(MAX_DOUBTFUL + 1)))

    assert not told.accept_recovered(wanted(0))
    assert told.accept_recovered(wanted(MAX_DOUBTFUL))
