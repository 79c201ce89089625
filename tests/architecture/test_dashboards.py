"""The dashboards agree with their panels, use existing metrics and show every metric."""

import re
from typing import Final

import promql_parser
import pytest
import yaml
from tests.architecture.metric_names import audit_gauges, declared, series_labels
from tests.architecture.source_tree import ROOT
from tests.tools.dashboards.grafana import DASHBOARDS, DATASOURCE, FOLDER, documents
from tests.tools.dashboards.overview import OVERVIEW
from tests.tools.dashboards.panel import RATE_INTERVAL, Dashboard
from tests.tools.dashboards.tables import MAX_LINES, PAGE
from tests.tools.dashboards.tables import page as tables_page

PROVISIONING: Final = ROOT / "compose" / "grafana" / "provisioning"
STALE: Final = "Run `python -m tests.tools.dashboards` to write the dashboards again."
STALE_TABLES: Final = "Run the test of the dashboards with PICTURES=1 to write the tables again."
SERIES: Final = re.compile(r"(harebell_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")
LEGEND: Final = re.compile(r"\{\{(\w+)\}\}")
OF_PROMETHEUS: Final = {"job", "instance"}  # labels that Prometheus adds to each series
OF_INFO: Final = {"version"}  # an info metric declares its labels with its value


def expressions() -> list[str]:
    return [
        query.expr
        for dashboard in DASHBOARDS
        for panel in dashboard.panels()
        for query in panel.queries
    ]


@pytest.mark.requirement("S115")
def test_dashboard_files_are_current() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}

    assert files == documents(), STALE


@pytest.mark.requirement("S115")
@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_query_is_valid_and_uses_existing_series_and_labels(expression: str) -> None:
    promql_parser.parse(expression.replace(RATE_INTERVAL, "1m"))
    labels = series_labels()
    selectors = SERIES.findall(expression)
    grouped = {each for group in GROUPING.findall(expression) for each in re.split(r",\s*", group)}

    assert selectors
    for series, matchers in selectors:
        assert set(MATCHER.findall(matchers)) <= labels[series], series
    assert grouped <= (OF_PROMETHEUS | OF_INFO).union(*(labels[series] for series, _ in selectors))


@pytest.mark.requirement("S115")
def test_legend_of_a_query_names_only_its_labels() -> None:
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels():
            for query in panel.queries:
                grouped = re.split(r",\s*", ",".join(GROUPING.findall(query.expr)))
                assert set(LEGEND.findall(query.legend)) == set(grouped) - {"le", ""}, panel.title


@pytest.mark.requirement("S115")
def test_every_metric_is_on_a_panel() -> None:
    shown = {series for text in expressions() for series, _ in SERIES.findall(text)}

    assert [metric.name for metric in declared() if shown.isdisjoint(metric.series)] == []
    assert audit_gauges().keys() - shown == set()


@pytest.mark.requirement("S115")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_titles_of_a_dashboard_are_unique(dashboard: Dashboard) -> None:
    titles = [panel.title for panel in dashboard.panels()]

    assert len(titles) == len(set(titles))


@pytest.mark.requirement("S115")
def test_page_with_the_tables_shows_data_and_no_removed_panel() -> None:
    """A new panel reaches the page when the test with a stack writes it again."""
    text = PAGE.read_text(encoding="utf-8")
    shown = [(each.title, panel.title) for each in DASHBOARDS for panel in each.panels()]
    dashboards = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    titles = [
        (part.partition("\n")[0], title)
        for part in dashboards
        for title in re.findall(r"^### (.+)$", part, re.MULTILINE)
    ]

    assert {title for title, _ in titles} == {title for title, _ in shown}, STALE_TABLES
    assert set(titles) <= set(shown), STALE_TABLES
    assert text.count("| line | value |") == len(titles)


@pytest.mark.requirement("S115")
def test_table_of_a_panel_has_one_row_for_each_line_up_to_a_bound() -> None:
    query = OVERVIEW.rows[0].panels[0].queries[0]
    samples = [
        {"metric": {"job": "ticker", "check": f"check-{number}"}, "value": [0, "1"]}
        for number in range(MAX_LINES + 3)
    ]

    text = tables_page({query: samples})

    assert text.count("| ticker check-") == MAX_LINES
    assert "| 3 more | |" in text
    assert text.count("No data.") == sum(len(list(each.panels())) for each in DASHBOARDS) - 1


@pytest.mark.requirement("S115")
def test_provisioned_data_source_is_the_one_of_the_panels() -> None:
    file = PROVISIONING / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]

    assert (source["type"], source["uid"]) == (DATASOURCE.type_val, DATASOURCE.uid)
