"""Metrics are named as Prometheus has it, and the page about them has all of them as they are."""

import re
from typing import Final

import pytest
from tests.architecture.metric_names import DECLARED, Metric
from tests.architecture.sources import ROOT

PAGE: Final = ROOT / "docs" / "operations" / "metrics.md"
ROW: Final = re.compile(
    r"^\| `(harebell_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
SERVICES: Final = {"intake", "ticker", "dispatcher", "executor", "dlq_inspector"}
IDS: Final = {"run", "run_id", "schedule", "schedule_id", "tenant", "key", "request_id", "instance"}


@pytest.mark.requirement("S114")
@pytest.mark.parametrize("metric", DECLARED, ids=lambda metric: metric.name)
def test_a_metric_has_our_prefix_a_base_unit_and_no_id_for_a_label(metric: Metric) -> None:
    assert metric.name.startswith("harebell_")
    assert not re.search("_(ms|millis|minutes|hours|kb|mb|percent)(_|$)", metric.name)
    assert not IDS & set(metric.labels)


@pytest.mark.requirement("S114")
def test_the_page_has_every_metric_as_it_is_declared() -> None:
    rows = ROW.findall(PAGE.read_text())
    written = {(name, type_, labels, what) for name, type_, labels, _, what in rows}
    declared = {
        (each.name, each.type, ", ".join(f"`{label}`" for label in each.labels), each.help)
        for each in DECLARED
    }

    assert written == declared
    told_by = {service for *_, by, _ in rows for service in by.split(", ")}
    assert told_by <= SERVICES | {"all"}
