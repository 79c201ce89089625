"""Tests of the probes of a lane: a claimed run is a probe if the ticket of its claim was one."""

import pytest
from tests.fakes.tickets import ticket

from harebell.executor.model.claimed_run import MAX_PROBES, ClaimedRun, Probes


def run_of(number: int, *, token: int) -> ClaimedRun:
    return ClaimedRun(ticket=ticket(number), token=token, attempt=1, lease=15.0, renewed_at=0.0)


@pytest.mark.requirement("S113")
def test_run_is_a_probe_once_when_the_ticket_of_its_claim_was_one() -> None:
    probes, probe = Probes(), ticket(1)
    probes.add([probe])

    assert not probes.remove(run_of(2, token=probe.seq + 1))  # another run
    assert not probes.remove(run_of(1, token=probe.seq + 3))  # a later claim of the run
    assert probes.remove(run_of(1, token=probe.seq + 1))
    assert not probes.remove(run_of(1, token=probe.seq + 1))


def test_oldest_probes_are_forgotten_above_the_bound() -> None:
    probes, seq = Probes(), ticket(0).seq
    probes.add([ticket(number) for number in range(MAX_PROBES + 1)])

    assert not probes.remove(run_of(0, token=seq + 1))
    assert probes.remove(run_of(MAX_PROBES, token=seq + 1))
