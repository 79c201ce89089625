"""Unit tests of one claim of a run and its lease."""

import pytest
from tests.fakes.tickets import NINE, ticket

from harebell.contract.policy import RecoveryClass
from harebell.executor.model.claimed_run import FRESH_LEASE_AGE, ClaimedRun, lease_seconds


@pytest.mark.requirement("S22", "S94")
@pytest.mark.parametrize(("class_", "seconds"), [("normal", 15), ("critical", 5)])
def test_lease_is_shorter_for_a_critical_run(class_: str, seconds: int) -> None:
    plain = ticket()
    run_spec = plain.run_spec.model_copy(update={"class_": RecoveryClass(class_)})

    lease = lease_seconds(plain.model_copy(update={"run_spec": run_spec}), normal=15, critical=5)

    assert lease == seconds


@pytest.mark.parametrize(
    ("lease", "age", "fresh"),
    [
        (15, FRESH_LEASE_AGE, True),
        (15, FRESH_LEASE_AGE + 0.01, False),
        (2, 1, True),
        (2, 1.01, False),
    ],
)
def test_lease_is_fresh_until_two_seconds_or_half_of_its_length(
    lease: float, age: float, *, fresh: bool
) -> None:
    run = ClaimedRun(ticket=ticket(), token=2, attempt=1, lease=lease, renewed_at=100.0)

    assert run.is_fresh(100 + age) is fresh
    assert run.lease_ends == 100 + lease


def test_start_sets_the_start_time_of_the_attempt() -> None:
    run = ClaimedRun(ticket=ticket(), token=2, attempt=1, lease=15, renewed_at=100.0)

    run.start(NINE)

    assert run.started_at == NINE
