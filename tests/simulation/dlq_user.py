"""Who works at the desk of dead letters: replays and drops, some of them twice at once."""

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

PAUSE: Final = 5.0  # seconds at most between two looks at the desk
SERIES: Final = 3  # of one run; what dies in the last stays on the desk


@dataclass
class Clerk:
    dice: Random
    store: Store
    users: Users
    told: dict[UUID, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _seen_to: set[UUID] = field(default_factory=set)

    async def live(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.dice.uniform(0, PAUSE))
            letters = self._open()
            chosen = self.dice.sample(letters, min(len(letters), 2))
            if chosen:
                verb = self.dice.choice(["dlq.replay", "dlq.replay", "dlq.discard"])
                at_once = self.dice.choice([1, 2])
                await asyncio.gather(*(self._ask(verb, chosen) for _ in range(at_once)))

    async def clear(self) -> None:
        """Each letter that is open is replayed; of a run that did not die after all, it stays."""
        letters = [letter for letter in self._open() if letter not in self._seen_to]
        self._seen_to.update(letters)
        if letters:
            await self._ask("dlq.replay", letters)

    def _open(self) -> list[UUID]:
        return [
            id_
            for id_, letter in self.store.tables[DEAD_LETTERS].items()
            if letter["state"] is DeadLetterState.OPEN
            and letter["kind"] == DeadLetterKind.RUN
            and letter["replay_number"] < SERIES
        ]

    async def _ask(self, verb: str, letters: list[UUID]) -> None:
        answer = await self.users.ask(verb, {"ids": [str(id_) for id_ in letters]})
        for id_, status in answer["results"].items():
            self.told[UUID(id_)][status] += 1
