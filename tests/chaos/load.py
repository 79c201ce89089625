"""The load of one wave: every step asked at its time, for as long as it takes, and written down."""

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.acceptance.recording_target import Target
from tests.acceptance.stack import now
from tests.chaos.generators import Script, Step
from tests.chaos.history import Operation, Verb

from harebell.client import Client
from harebell.contract.errors import CommandRejected, Transient

ASKED: Final = 2  # times that a command is asked which is not answered


@dataclass
class Load:
    """`operations` is also appended to `journal`, one JSON a line."""

    harebell: Client  # its timeout is how long an answer is waited for, each time
    target: Target
    journal: Path
    operations: list[Operation] = field(default_factory=list)

    async def play(self, script: Script, began: datetime) -> None:
        """Returns when everything has been answered, or has not been in time."""
        schedules: dict[str, list[Step]] = defaultdict(list)
        for step in script.steps:
            schedules[step.key].append(step)
        async with asyncio.TaskGroup() as group:
            for steps in schedules.values():
                group.create_task(self._one_schedule(steps, began))
            for at, name in script.fixes:
                group.create_task(self._fix(at, name, began))

    async def _one_schedule(self, steps: list[Step], began: datetime) -> None:
        """One after the other: what comes next waits for the answer."""
        for number, step in enumerate(steps):
            await _until(began + timedelta(seconds=step.at))
            asked_at = now()
            answer, refused = await self._ask(step, f"{step.key}-{number}")
            notified_at = None if answer is None and refused is None else now()
            self._note(
                Operation(
                    step.key, step.verb, asked_at, notified_at, step.body, answer or {}, refused
                )
            )

    async def _ask(self, step: Step, request: str) -> tuple[dict[str, Any] | None, str | None]:
        """The answer, the code of the refusal, or neither. Asked again by its id, as users do."""
        for _ in range(ASKED):
            try:
                return await self._ask_once(step, request)
            except Transient:
                continue
        return None, None

    async def _ask_once(self, step: Step, request: str) -> tuple[dict[str, Any] | None, str | None]:
        order = {"key": step.key, "request_id": request}
        try:
            match step.verb:
                case Verb.PUT:
                    answer = await self.harebell.put(step.body)
                case Verb.CANCEL:
                    answer = await self.harebell.cancel(**order)
                case Verb.PAUSE:
                    answer = await self.harebell.pause(**order)
                case Verb.RESUME:
                    answer = await self.harebell.resume(**order)
                case Verb.TRIGGER:
                    answer = await self.harebell.trigger(**order)
        except CommandRejected as refused:
            return None, refused.code
        return answer.model_dump(mode="json"), None

    async def _fix(self, at: float, name: str, began: datetime) -> None:
        await _until(began + timedelta(seconds=at))
        await asyncio.to_thread(self.target.fix, name)

    def _note(self, operation: Operation) -> None:
        self.operations.append(operation)
        with self.journal.open("a") as file:
            file.write(json.dumps(operation.as_json(), default=str) + "\n")


async def _until(moment: datetime) -> None:
    await asyncio.sleep(max(0.0, (moment - now()).total_seconds()))
