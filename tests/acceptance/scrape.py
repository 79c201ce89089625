"""The metrics of a stack, summed over its services."""

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from tests.acceptance.stack import Stack

from harebell.dev.plan import ServiceCounts, ServiceKind

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Scrape:
    values: Counter[Sample]

    @classmethod
    async def collect(cls, stack: Stack, counts: ServiceCounts) -> "Scrape":
        """Read the metrics of each service once and sum their values."""
        ports = [stack.services.plan(kind, number).port for kind, number in counts.members()]
        texts = await asyncio.gather(*(asyncio.to_thread(_read, port) for port in ports))
        values: Counter[Sample] = Counter()
        for text in texts:
            values.update(dict(_samples(text)))
        return cls(values)

    @classmethod
    async def collect_one(cls, stack: Stack, kind: ServiceKind, number: int) -> "Scrape":
        port = stack.services.plan(kind, number).port
        return cls(Counter(dict(_samples(await asyncio.to_thread(_read, port)))))

    def __sub__(self, before: "Scrape") -> "Scrape":
        """Return the differences to an earlier scrape."""
        left = Counter(self.values)
        left.subtract(before.values)
        return Scrape(left)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all series with these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (metric, found), value in self.values.items()
            if metric == name and wanted <= found
        )

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the sums that are not zero, by the values of these labels."""
        found: Counter[tuple[str, ...]] = Counter()
        for (metric, pairs), value in self.values.items():
            if metric == name:
                found[tuple(dict(pairs)[label] for label in labels)] += value
        return {key: value for key, value in found.items() if value}

    def share_within(self, histogram: str, seconds: float, **labels: str) -> float:
        """Return the share of the observations within `seconds`, which must be a bucket bound."""
        within = self.total(f"{histogram}_bucket", le=str(float(seconds)), **labels)
        return within / self.total(f"{histogram}_count", **labels)


def _read(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def _samples(text: str) -> Iterable[tuple[Sample, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value
