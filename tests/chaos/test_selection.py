"""A test with a few faults on a private stack. `make chaos` runs all faults."""

from pathlib import Path

import pytest
from tests.chaos.faults import select_faults
from tests.chaos.run import ChaosPlan, Report, run_plan, single_rounds
from tests.suite.results import LostOrDoubledRun

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

ROWS = "2d,6c,14b"  # a ticker, an executor, the database
SEED = 1
OUTAGE = 3.0  # seconds


@pytest.mark.requirement("S40", "S76")
def test_harebell_keeps_every_promise_when_services_and_servers_are_killed(tmp_path: Path) -> None:
    report = Report(out=None)
    faults = select_faults(ROWS)

    run_plan(ChaosPlan([single_rounds(SEED, faults)], OUTAGE), tmp_path, report)

    findings = [str(each) for result in report.results for each in result.findings]
    if findings:
        raise LostOrDoubledRun("\n".join(findings))
    assert len(report.results) == len(faults)
    assert all(result.ran > 100 for result in report.results)
