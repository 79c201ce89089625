"""The JSON of Grafana for each dashboard."""

from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
)
from tests.architecture.source_tree import ROOT
from tests.tools.dashboards.capacity import CAPACITY
from tests.tools.dashboards.failures import FAILURES
from tests.tools.dashboards.lateness import LATENESS
from tests.tools.dashboards.overview import OVERVIEW
from tests.tools.dashboards.panel import Dashboard, Panel

FOLDER: Final = ROOT / "compose" / "grafana" / "dashboards"
DASHBOARDS: Final = (OVERVIEW, LATENESS, CAPACITY, FAILURES)

TAG: Final = "harebell"
DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="prometheus")
REFRESH: Final = "10s"
FROM: Final = "now-1h"
PANEL_HEIGHT: Final = 8  # of rows of Grafana's grid
PANEL_SPAN: Final = 8  # of the 24 columns of Grafana's grid

# Dashboards of the servers that Harebell uses, on grafana.com.
RELATED: Final = {
    "RabbitMQ overview": "https://grafana.com/grafana/dashboards/10991",
    "RabbitMQ quorum queues": "https://grafana.com/grafana/dashboards/11340",
    "PostgreSQL": "https://grafana.com/grafana/dashboards/9628",
}


def documents() -> dict[Path, str]:
    """Return the content of each dashboard file."""
    return {FOLDER / f"{each.name}.json": _json(each) for each in DASHBOARDS}


def write() -> None:
    """Write the dashboard files, and delete files of dashboards that no longer exist."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = documents()
    for path in set(FOLDER.glob("*.json")) - set(files):
        path.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def _json(source: Dashboard) -> str:
    builder = (
        dashboard.Dashboard(source.title)
        .uid(f"harebell-{source.name}")
        .tags([TAG])
        .refresh(REFRESH)
        .time(FROM, "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Harebell").type(DashboardLinkType.DASHBOARDS).tags([TAG]))
    )
    for title, url in RELATED.items():
        builder.link(
            dashboard.DashboardLink(title)
            .type(DashboardLinkType.LINK)
            .url(url)
            .target_blank(target_blank=True)
        )
    for row in source.rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(builder.build()) + "\n"


def _panel(panel: Panel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .min(0)
        .height(PANEL_HEIGHT)
        .span(PANEL_SPAN)
    )
    if panel.is_stacked:
        builder.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for query in panel.queries:
        builder.with_target(
            prometheus.Dataquery().expr(query.expr).legend_format(query.legend).range()
        )
    return builder
