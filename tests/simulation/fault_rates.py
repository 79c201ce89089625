"""The rates of faults in a scenario, and the counts of the faults that occurred."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final, Self

# The maximum rates, for one call of broker or database, or for one message in a queue.
MAX_RATES: Final = {
    "rejected": 0.06,  # a call fails without its effect
    "unanswered": 0.06,  # a call fails after its effect
    "slow": 0.04,
    "crashed": 0.006,  # the process dies before or after the effect
    "frozen": 0.006,  # the process stops before or after the effect
    "lost": 0.15,
    "duplicated": 0.2,
    "late": 0.3,
}


@dataclass
class FaultRates:
    """The rates of one scenario, with the random source of its faults."""

    random: Random
    rates: dict[str, float]
    counts: Counter[str]

    @classmethod
    def generate(cls, random: Random, counts: Counter[str]) -> Self:
        """Return random rates. Half of them are 0, so that others have more effect."""
        rates = {
            kind: random.choice([0.0, random.uniform(0, maximum)])
            for kind, maximum in MAX_RATES.items()
        }
        return cls(random, rates, counts)

    def occurs(self, kind: str) -> bool:
        """Return whether the fault occurs now, and count it."""
        rate = self.rates[kind]
        if not rate or self.random.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def stop(self) -> None:
        self.rates = dict.fromkeys(self.rates, 0.0)
