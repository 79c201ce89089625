"""Alert rules use existing metrics, start and clear as their tests state, and have a runbook."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import pytest
import yaml
from tests.architecture.documents import page
from tests.architecture.metric_names import series_labels
from tests.architecture.source_tree import ROOT

PROMETHEUS: Final = ROOT / "compose" / "prometheus"
TESTS: Final = sorted((PROMETHEUS / "tests").glob("*.yml"))

SELECTOR: Final = re.compile(r"(harebell_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING: Final = re.compile(r"\b(?:by|on|without) \(([^)]*)\)")
INACTIVE_ACTIVE_INACTIVE: Final = [False, True, False]


def rules() -> list[dict[str, Any]]:
    """Return the alert rules in the order of the file."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def evaluations() -> Iterator[tuple[str, bool]]:
    """Yield each expected alert and whether the alert is active, in the order of time."""
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            yield from (
                (each["alertname"], bool(each["exp_alerts"])) for each in test["alert_rule_test"]
            )


RULES: Final = rules()
NAMES: Final = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_alert_rule_uses_existing_series_and_labels(rule: dict[str, Any]) -> None:
    labels = series_labels()
    selectors = SELECTOR.findall(rule["expr"])
    grouped = re.split(r"[,\s]+", ",".join(GROUPING.findall(rule["expr"])))

    assert selectors
    for series, matchers in selectors:
        assert set(MATCHER.findall(matchers)) <= labels[series], series
    assert set(filter(None, grouped)) <= {each for name, _ in selectors for each in labels[name]}


@pytest.mark.requirement("S116")
@pytest.mark.parametrize("alert", NAMES)
def test_alert_rule_is_tested_inactive_then_active_then_inactive(alert: str) -> None:
    states = [is_active for name, is_active in evaluations() if name == alert]

    assert [is_active for is_active, _ in groupby(states)] == INACTIVE_ACTIVE_INACTIVE


@pytest.mark.requirement("S116", "S31", "ASK-1")
def test_alert_rules_pass_their_prometheus_tests() -> None:
    promtool = shutil.which("promtool")
    assert promtool, "The test needs promtool from the Debian package prometheus."

    done = subprocess.run(  # noqa: S603  # the arguments are constants and paths of the repository
        [promtool, "test", "rules", *map(str, TESTS)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(TESTS)


def test_alert_page_has_one_section_for_each_rule() -> None:
    path = page("alerts.md")
    sections = re.findall(r"^## (\w+)$", path.read_text(), re.MULTILINE)

    assert sections == NAMES
    for rule in RULES:
        runbook = f"{path.relative_to(ROOT)}#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == runbook
