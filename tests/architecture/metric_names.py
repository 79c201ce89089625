"""The metrics that the packages declare, as values: names, labels, help texts and series."""

import importlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

from prometheus_client.metrics import MetricWrapperBase
from tests.architecture.source_tree import source_modules

from harebell.audit.gauges import Audited, AuditGauges
from harebell.audit.model.report import Report

_SUFFIXES: Final = {
    "counter": ["_total"],
    "gauge": [""],
    "info": ["_info"],
    "histogram": ["_bucket", "_count", "_sum"],
}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One declared metric. `name` is the name in PromQL, and `family` the name without suffix."""

    home: str  # the module that declares the metric
    variable: str
    family: str
    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    series: tuple[str, ...]


@cache
def declared() -> tuple[Metric, ...]:
    """Return the metrics in the order of their modules."""
    homes = [module.name for module in source_modules() if any(module.metric_calls())]
    return tuple(
        _metric(home, variable, value)
        for home in homes
        for variable, value in vars(importlib.import_module(home)).items()
        if isinstance(value, MetricWrapperBase)
    )


@cache
def series_labels() -> dict[str, set[str]]:
    """Return the labels of each series."""
    of_services = {
        series: {*metric.labels, *(["le"] if series.endswith("_bucket") else [])}
        for metric in declared()
        for series in metric.series
    }
    return of_services | audit_gauges()


@cache
def audit_gauges() -> dict[str, set[str]]:
    """Return the gauges of `harebell audit`, which no service declares, with their labels."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    collector = AuditGauges(Audited(Report(since=at, until=at), at))
    return {
        family.name: {label for sample in family.samples for label in sample.labels}
        for family in collector.collect()
    }


def _metric(home: str, variable: str, value: MetricWrapperBase) -> Metric:
    (family,) = value.describe()
    suffixes = _SUFFIXES[family.type]
    return Metric(
        home=home,
        variable=variable,
        family=family.name,
        name=family.name if family.type == "histogram" else family.name + suffixes[0],
        type=family.type,
        labels=tuple(value._labelnames),  # noqa: SLF001  # the library has no public attribute
        help=family.documentation,
        series=tuple(family.name + suffix for suffix in suffixes),
    )
