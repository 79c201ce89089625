"""The rates of faults in a scenario, and the counts of the faults that occurred."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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

# The rates of what happens in one attempt.
EFFECT_RATES: Final = {
    "long": 0.1,  # an attempt can take longer than a lease
    "permanent": 0.05,  # an attempt fails, and a retry would also fail
    "failed": 0.2,
}
# The rates of faults that occur only on request, at the steps where a fault has the most effect.
DIRECTED_RATES: Final = {
    "frozen_claim": 0.0,  # the process stops when it receives its claims
    "frozen_attempt": 0.0,  # the process stops at the start of an attempt
}


@dataclass(kw_only=True)
class FaultRates:
    """The rates of one scenario, with the random source of its faults."""

    random: Random
    rates: dict[str, float]
    counts: Counter[str]
    effect_rates: Mapping[str, float] = field(default_factory=EFFECT_RATES.copy)

    @classmethod
    def generate(cls, random: Random, counts: Counter[str], fixed: Mapping[str, float]) -> Self:
        """Return random rates, except the fixed ones.

        Half of them are 0, so that others have more effect.
        """
        rates = {
            kind: random.choice([0.0, random.uniform(0, maximum)])
            for kind, maximum in MAX_RATES.items()
        }
        effects = {kind: fixed.get(kind, rate) for kind, rate in EFFECT_RATES.items()}
        faults = {kind: fixed.get(kind, rate) for kind, rate in (DIRECTED_RATES | rates).items()}
        return cls(random=random, rates=faults, counts=counts, effect_rates=effects)

    def occurs(self, kind: str) -> bool:
        """Return whether the fault occurs now, and count it."""
        rate = self.rates[kind]
        if not rate or self.random.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def stop(self) -> None:
        self.rates = dict.fromkeys(self.rates, 0.0)
