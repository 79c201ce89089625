"""What the services of a stack say on `/metrics`, added up over them."""

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from tests.acceptance.stack import Stack

from harebell.dev.plan import Counts, ServiceKind

Sample = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Scrape:
    values: Counter[Sample]

    @classmethod
    async def of(cls, stack: Stack, counts: Counts) -> "Scrape":
        """Every service once; a counter's value here is all that they counted together."""
        ports = [stack.services.plan(kind, number).port for kind, number in counts.members()]
        texts = await asyncio.gather(*(asyncio.to_thread(_read, port) for port in ports))
        values: Counter[Sample] = Counter()
        for text in texts:
            values.update(dict(_samples(text)))
        return cls(values)

    @classmethod
    async def of_one(cls, stack: Stack, kind: ServiceKind, number: int) -> "Scrape":
        port = stack.services.plan(kind, number).port
        return cls(Counter(dict(_samples(await asyncio.to_thread(_read, port)))))

    def __sub__(self, before: "Scrape") -> "Scrape":
        """What was counted since."""
        left = Counter(self.values)
        left.subtract(before.values)
        return Scrape(left)

    def total(self, name: str, **labels: str) -> float:
        """Over all series that have these labels."""
        wanted = set(labels.items())
        return sum(
            value for (of, have), value in self.values.items() if of == name and wanted <= have
        )

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """What is not zero, by the values of these labels."""
        found: Counter[tuple[str, ...]] = Counter()
        for (of, have), value in self.values.items():
            if of == name:
                found[tuple(dict(have)[label] for label in labels)] += value
        return {key: value for key, value in found.items() if value}

    def share_within(self, histogram: str, seconds: float, **labels: str) -> float:
        """Of what a histogram saw: from 0 to 1. `seconds` is one of its bounds."""
        within = self.total(f"{histogram}_bucket", le=str(float(seconds)), **labels)
        return within / self.total(f"{histogram}_count", **labels)


def _read(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _samples(text: str) -> Iterable[tuple[Sample, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value
