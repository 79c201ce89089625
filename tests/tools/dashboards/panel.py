"""Panels and dashboards as values, and the PromQL that several panels share."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RATE_INTERVAL: Final = "$__rate_interval"  # Grafana replaces it with at least four scrape intervals


class Unit(StrEnum):
    """The units of panels, as Grafana names them."""

    NUMBER = "short"
    PER_SECOND = "ops"
    SECONDS = "s"
    RATIO = "percentunit"


@dataclass(frozen=True)
class Query:
    """One PromQL query and the name of its lines, with labels such as `{{lane}}`."""

    expr: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel with lines over time. The description tells what a person can conclude from it."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    is_stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a dashboard: a heading with its panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard. The name is also the name of its file and the end of its stable identifier."""

    name: str
    title: str
    rows: tuple[Row, ...]

    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels


def rate(counter: str, *labels: str, selector: str = "") -> Query:
    """Return the rate of a counter per second, one line for each combination of the labels."""
    increase = f"rate({counter}{selector}[{RATE_INTERVAL}])"
    by = f" by ({', '.join(labels)})" if labels else ""
    legend = ", ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(f"sum{by} ({increase})", legend or counter.removeprefix("harebell_"))


def quantiles(histogram: str, label: str | None = None) -> tuple[Query, ...]:
    """Return the median, the 99th and the 99.9th percentile of a histogram."""
    by = "le" if label is None else f"le, {label}"
    suffix = "" if label is None else f" {{{{{label}}}}}"
    buckets = f"sum by ({by}) (rate({histogram}_bucket[{RATE_INTERVAL}]))"
    return tuple(
        Query(f"histogram_quantile({quantile}, {buckets})", f"p{percent}{suffix}")
        for quantile, percent in ((0.5, "50"), (0.99, "99"), (0.999, "99.9"))
    )


def total(gauge: str, *labels: str) -> Query:
    """Return the sum of a gauge over the instances, which each report their own part."""
    return _combined("sum", gauge, labels)


def shared(gauge: str, *labels: str) -> Query:
    """Return the maximum of a gauge over the instances, which all report the same value."""
    return _combined("max", gauge, labels)


def _combined(operator: str, gauge: str, labels: tuple[str, ...]) -> Query:
    by = f" by ({', '.join(labels)})" if labels else ""
    legend = ", ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(f"{operator}{by} ({gauge})", legend or gauge.removeprefix("harebell_"))
