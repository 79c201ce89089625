"""The counts of what tenants did and of what was refused, before a service stores them. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ACCEPTED: Final = ""  # the code of a count of something that was not refused
PUTS: Final = "puts_per_second"
BACKFILL_RUNS: Final = "backfill_runs"
SCHEDULES: Final = "schedules"
MAX_KEYS: Final = 10_000  # counts between two writes; further ones are dropped


class UsageKey(NamedTuple):
    """A tenant, a quota or another field of its policy, and the code of the refusal."""

    tenant: str
    rule: str
    code: str = ACCEPTED


@dataclass(slots=True)
class UsageCounts:
    """The counts since the last `take`, of at most `MAX_KEYS` keys."""

    dropped: int = 0  # counts for which there was no room
    _numbers: Counter[UsageKey] = field(default_factory=Counter)

    def add(self, key: UsageKey, number: int = 1) -> None:
        """Count `number` for the key. Drop it, and count it in `dropped`, without room."""
        if number and (key in self._numbers or len(self._numbers) < MAX_KEYS):
            self._numbers[key] += number
        else:
            self.dropped += number

    def take(self) -> dict[UsageKey, int]:
        """Return the counts, and begin again with none."""
        taken, self._numbers = dict(self._numbers), Counter()
        return taken
