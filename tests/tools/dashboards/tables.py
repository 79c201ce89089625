"""The results of the queries of the dashboards, as tables of Markdown in place of pictures."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.architecture.source_tree import ROOT
from tests.tools.dashboards.grafana import DASHBOARDS
from tests.tools.dashboards.panel import RATE_INTERVAL, Panel, Query, Unit

PAGE: Final = ROOT / "docs" / "operations" / "dashboard-tables.md"
INTRODUCTION: Final = """\
# Dashboards as tables

This page shows each panel of the [dashboards](dashboards.md) with its data at one instant.
Prometheus scraped a small stack with successes, failures and refused commands.
A test writes the page with the command of [dashboards](dashboards.md#show-the-panels-as-tables).
"""
SHORT_RATE: Final = "20s"  # in place of the interval that Grafana computes
MAX_LINES: Final = 20  # of one query
LEGEND: Final = re.compile(r"\{\{(\w+)\}\}")
CENTS: Final = 100
PRECISION: Final = 3  # digits

Samples = Sequence[Mapping[str, Any]]  # of an instant query: `metric` and `value`


def current(run: Callable[[str], Samples]) -> dict[Query, Samples]:
    """Return the samples of each query. `run` sends one query to Prometheus."""
    return {query: run(expression(query)) for query in queries()}


def queries() -> Iterator[Query]:
    """Yield each query of each panel."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels():
            yield from panel.queries


def expression(query: Query) -> str:
    """Return the query without the variable of Grafana."""
    return query.expr.replace(RATE_INTERVAL, SHORT_RATE)


def page(found: Mapping[Query, Samples]) -> str:
    """Return the page with a table for each panel, and a sentence for a panel without data."""
    parts = [INTRODUCTION]
    for dashboard in DASHBOARDS:
        parts.append(f"\n## {dashboard.title}\n")
        for panel in dashboard.panels():
            parts.append(f"\n### {panel.title}\n\n{_sentences(panel.description)}\n\n")
            parts.append(_table(panel, found))
    return "".join(parts)


def _sentences(text: str) -> str:
    return re.sub(r"(?<=\.) ", "\n", text)


def _table(panel: Panel, found: Mapping[Query, Samples]) -> str:
    rows = [row for query in panel.queries for row in _rows(panel, query, found.get(query, ()))]
    return "".join(["| line | value |\n|---|---|\n", *rows]) if rows else "No data.\n"


def _rows(panel: Panel, query: Query, samples: Samples) -> Iterator[str]:
    lines = sorted((_line(query, each["metric"]), float(each["value"][1])) for each in samples)
    for name, value in lines[:MAX_LINES]:
        yield f"| {name} | {_value(value, panel.unit)} |\n"
    if len(lines) > MAX_LINES:
        yield f"| {len(lines) - MAX_LINES} more | |\n"


def _line(query: Query, labels: Mapping[str, str]) -> str:
    """Return the name of a line, as Grafana shows it in the legend."""
    return LEGEND.sub(lambda match: labels.get(match[1], ""), query.legend).replace("|", r"\|")


def _value(value: float, unit: Unit) -> str:
    match unit:
        case Unit.RATIO:
            return f"{value * CENTS:.{PRECISION}g} %"
        case Unit.SECONDS:
            return f"{value:.{PRECISION}g} s"
        case Unit.PER_SECOND:
            return f"{value:.{PRECISION}g}/s"
        case Unit.NUMBER:
            return f"{value:.6g}"
