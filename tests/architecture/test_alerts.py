"""Alert rules are of metrics that exist; each is seen to fire and to clear, and is explained."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import pytest
import yaml
from tests.architecture.metric_names import SERIES
from tests.architecture.sources import ROOT

PROMETHEUS: Final = ROOT / "compose" / "prometheus"
EXPLAINED: Final = ROOT / "docs" / "operations" / "alerts.md"
TESTS: Final = sorted((PROMETHEUS / "tests").glob("*.yml"))

SELECTOR: Final = re.compile(r"(harebell_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING: Final = re.compile(r"\b(?:by|on|without) \(([^)]*)\)")
FIRES_AND_CLEARS: Final = [False, True, False]


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def evaluations() -> Iterator[tuple[str, bool]]:
    """Which alert is looked at, and whether it is to fire then; in the order of time."""
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            yield from (
                (each["alertname"], bool(each["exp_alerts"])) for each in test["alert_rule_test"]
            )


RULES: Final = rules()
NAMES: Final = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_asks_for_series_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    selectors = SELECTOR.findall(rule["expr"])
    assert selectors
    for replay_number, matchers in selectors:
        assert set(MATCHER.findall(matchers)) <= SERIES[replay_number], replay_number
    told = {label for replay_number, _ in selectors for label in SERIES[replay_number]}
    grouped = re.split(r"[,\s]+", ",".join(GROUPING.findall(rule["expr"])))
    assert set(filter(None, grouped)) <= told


@pytest.mark.requirement("S116")
@pytest.mark.parametrize("alert", NAMES)
def test_every_rule_is_seen_quiet_then_firing_then_clear(alert: str) -> None:
    seen = [fires for name, fires in evaluations() if name == alert]

    assert [fires for fires, _ in groupby(seen)] == FIRES_AND_CLEARS


@pytest.mark.requirement("S31", "S116", "ASK-1")
def test_every_rule_fires_and_clears_as_its_test_says() -> None:
    promtool = shutil.which("promtool")
    assert promtool, (
        "no promtool: it is in Debian's package prometheus; bootstrap.sh tests brings it"
    )

    done = subprocess.run(  # noqa: S603  # the command is ours
        [promtool, "test", "rules", *map(str, TESTS)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(TESTS)


def test_every_rule_is_explained_where_it_says_and_nothing_else_is() -> None:
    explained = re.findall(r"^## (\w+)$", EXPLAINED.read_text(), re.MULTILINE)
    page = EXPLAINED.relative_to(ROOT)

    assert explained == NAMES
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"{page}#{rule['alert'].lower()}"
