"""How often each kind of fault happens in a world, and how often it did."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final, Self

# At one asking of broker or database, or at one message in a queue; at most, as worlds differ.
KINDS: Final = {
    "refused": 0.06,  # an asking fails, without effect
    "unanswered": 0.06,  # it fails, with its effect
    "slow": 0.04,
    "crashed": 0.006,  # the process dies, before or after the effect
    "frozen": 0.006,  # the process stands still, before or after the effect
    "lost": 0.15,
    "doubled": 0.2,
    "late": 0.3,
}


@dataclass
class Odds:
    dice: Random
    of: dict[str, float]
    happened: Counter[str]

    @classmethod
    def drawn(cls, dice: Random, happened: Counter[str]) -> Self:
        """Half of the worlds know nothing of a kind: others then show more of theirs."""
        of = {kind: dice.choice([0.0, dice.uniform(0, most)]) for kind, most in KINDS.items()}
        return cls(dice, of, happened)

    def strike(self, kind: str) -> bool:
        odds = self.of[kind]
        if not odds or self.dice.random() >= odds:
            return False
        self.happened[kind] += 1
        return True

    def stop(self) -> None:
        self.of = dict.fromkeys(self.of, 0.0)
