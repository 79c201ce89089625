"""The load of a round: each command is sent at its time and written to a journal."""

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

MAX_REQUESTS: Final = 2  # of one command that receives no response


@dataclass(kw_only=True)
class Load:
    """The user of a round. The timeout of `client` bounds the wait for each response."""

    client: Client
    target: Target
    journal: Path  # receives each operation as a line of JSON
    operations: list[Operation] = field(default_factory=list)

    async def run(self, script: Script, started_at: datetime) -> None:
        """Send all commands, and return after the last response or timeout."""
        schedules: dict[str, list[Step]] = defaultdict(list)
        for step in script.steps:
            schedules[step.key].append(step)
        async with asyncio.TaskGroup() as group:
            for steps in schedules.values():
                group.create_task(self._run_schedule(steps, started_at))
            for at, name in script.repairs:
                group.create_task(self._repair(at, name, started_at))

    async def _run_schedule(self, steps: list[Step], started_at: datetime) -> None:
        """Send the commands of one schedule, each after the response to the previous one."""
        for number, step in enumerate(steps):
            await _until(started_at + timedelta(seconds=step.at))
            sent_at = now()
            response, error_code = await self._request(step, f"{step.key}-{number}")
            is_answered = response is not None or error_code is not None
            self._record(
                Operation(
                    key=step.key,
                    verb=step.verb,
                    sent_at=sent_at,
                    answered_at=now() if is_answered else None,
                    body=step.body,
                    response=response or {},
                    error_code=error_code,
                )
            )

    async def _request(
        self, step: Step, request_id: str
    ) -> tuple[dict[str, Any] | None, str | None]:
        """Return the response, the code of the rejection or neither.

        A command without a response is sent again with the same id, as users do.
        """
        for _ in range(MAX_REQUESTS):
            try:
                return await self._request_once(step, request_id)
            except Transient:
                continue
        return None, None

    async def _request_once(
        self, step: Step, request_id: str
    ) -> tuple[dict[str, Any] | None, str | None]:
        options = {"key": step.key, "request_id": request_id}
        try:
            match step.verb:
                case Verb.PUT:
                    response = await self.client.put(step.body)
                case Verb.CANCEL:
                    response = await self.client.cancel(**options)
                case Verb.PAUSE:
                    response = await self.client.pause(**options)
                case Verb.RESUME:
                    response = await self.client.resume(**options)
                case Verb.TRIGGER:
                    response = await self.client.trigger(**options)
        except CommandRejected as rejection:
            return None, rejection.code
        return response.model_dump(mode="json"), None

    async def _repair(self, at: float, name: str, started_at: datetime) -> None:
        await _until(started_at + timedelta(seconds=at))
        await asyncio.to_thread(self.target.fix, name)

    def _record(self, operation: Operation) -> None:
        self.operations.append(operation)
        with self.journal.open("a") as file:
            file.write(json.dumps(operation.as_json(), default=str) + "\n")


async def _until(time: datetime) -> None:
    await asyncio.sleep(max(0.0, (time - now()).total_seconds()))
