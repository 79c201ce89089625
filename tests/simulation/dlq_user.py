"""The user of dead letters, who replays and discards them, also with two concurrent commands."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.store import Store
from tests.simulation.users import Users

from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState

MAX_PAUSE: Final = 5.0  # seconds between two commands
MAX_REPLAYS: Final = 2  # of one run; a dead letter of the last replay remains open


@dataclass(kw_only=True)
class DlqUser:
    """A person with dead letters. `results` counts the statuses of each dead letter."""

    random: Random
    store: Store
    users: Users
    results: dict[UUID, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _handled: set[UUID] = field(default_factory=set)

    async def run(self) -> None:
        """Send random commands until the task is cancelled."""
        while True:
            await asyncio.sleep(self.random.uniform(0, MAX_PAUSE))
            dead_letters = self._open_dead_letters()
            chosen = self.random.sample(dead_letters, min(len(dead_letters), 2))
            if chosen:
                verb = self.random.choice(["dlq.replay", "dlq.replay", "dlq.discard"])
                count = self.random.choice([1, 2])
                await asyncio.gather(*(self._request(verb, chosen) for _ in range(count)))

    async def replay_open(self) -> None:
        """Replay each open dead letter once. A run that did not die keeps its dead letter."""
        remaining = [each for each in self._open_dead_letters() if each not in self._handled]
        self._handled.update(remaining)
        if remaining:
            await self._request("dlq.replay", remaining)

    def _open_dead_letters(self) -> list[UUID]:
        return [
            id_
            for id_, dead_letter in self.store.tables[DEAD_LETTERS].items()
            if dead_letter["state"] is DeadLetterState.OPEN
            and dead_letter["kind"] == DeadLetterKind.RUN
            and dead_letter["replay_number"] < MAX_REPLAYS
        ]

    async def _request(self, verb: str, dead_letters: list[UUID]) -> None:
        response = await self.users.request(verb, {"ids": [str(id_) for id_ in dead_letters]})
        assert response["ok"], response
        for id_, status in response["results"].items():
            self.results[UUID(id_)][status] += 1
