"""A few faults of the whole, on a stack of its own: `make chaos` has all of them."""

from pathlib import Path

import pytest
from tests.chaos.faults import chosen
from tests.chaos.run import Plan, Report, perform, single

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ROWS = "2d,6c,14b"  # a ticker, an executor, the database
SEED = 1
OUTAGE = 3.0  # seconds


@pytest.mark.requirement("S40", "S76")
def test_services_and_servers_are_killed_and_every_promise_is_kept(tmp_path: Path) -> None:
    report = Report(out=None)

    perform(Plan([single(SEED, chosen(ROWS))], OUTAGE), tmp_path, report)

    assert [str(found) for verdict in report.verdicts for found in verdict.findings] == []
    assert len(report.verdicts) == len(chosen(ROWS))
    assert all(verdict.ran > 100 for verdict in report.verdicts)
