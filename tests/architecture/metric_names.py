"""What `kernel/metrics.py` declares, as values: metrics as people write them, and their series."""

from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from harebell.dispatcher import metrics as dispatcher
from harebell.dlq_inspector import metrics as dlq_inspector
from harebell.executor import metrics as executor
from harebell.messaging import metrics as messaging
from harebell.runtime import metrics as runtime
from harebell.storage import metrics as storage
from harebell.ticker import metrics as ticker

_SUFFIXES: Final = {
    "counter": ["_total"],
    "gauge": [""],
    "info": ["_info"],
    "histogram": ["_bucket", "_count", "_sum"],
}


@dataclass(frozen=True)
class Metric:
    name: str  # without what a series adds; a counter's as in PromQL
    type: str
    labels: tuple[str, ...]
    help: str
    replay_number: tuple[str, ...]


def _read(declared: MetricWrapperBase) -> Metric:
    (family,) = declared.describe()
    suffixes = _SUFFIXES[family.type]
    name = family.name if family.type == "histogram" else family.name + suffixes[0]
    labels = declared._labelnames  # noqa: SLF001  # no other way to read it
    replay_number = tuple(family.name + suffix for suffix in suffixes)
    return Metric(name, family.type, tuple(labels), family.documentation, replay_number)


HOMES: Final = (runtime, messaging, storage, ticker, dispatcher, executor, dlq_inspector)
DECLARED: Final = [
    _read(each)
    for home in HOMES
    for each in vars(home).values()
    if isinstance(each, MetricWrapperBase)
]

# The labels that each series may be asked by.
SERIES: Final = {
    series: {*metric.labels, *(["le"] if series.endswith("_bucket") else [])}
    for metric in DECLARED
    for series in metric.series
}
