"""Users of the simulation: schedules of every kind, changed at any moment, answers waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

import orjson
from tests.simulation.bus import Broker, Message
from tests.simulation.invariants import Cancelled, Witness
from tests.simulation.services import TASK

from harebell.contract.amqp_names import COMMANDS, message_key
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.types import instant_text, truncate_ms

PATIENCE: Final = 8.0  # seconds without an answer before a command is sent again, by its own id
TENANT: Final = "acme"
LATER: Final = "a put that takes effect later"


@dataclass
class Users:
    dice: Random
    broker: Broker
    witness: Witness
    now: Callable[[], datetime]
    trace: Callable[[str], None]
    schedules: list[UUID] = field(default_factory=list)
    untouched: dict[UUID, dict[str, Any]] = field(default_factory=dict)  # never changed: rules
    triggered: list[RunKey] = field(default_factory=list)
    sent: int = 0

    async def live(self, seconds: float) -> None:
        """New schedules in the first half of it, changes of them throughout."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.dice.randint(2, 5)):
                tasks.create_task(self._schedule(number, self.dice.uniform(0, seconds / 2)))

    async def _schedule(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        body = self._body(number)
        schedule = schedule_id(TENANT, body["key"])
        self.schedules.append(schedule)
        answer = await self.ask("schedule.put", body, schedule)
        assert answer["ok"], answer
        is_reckonable = "from" not in body["when"]  # else an end decides about the next
        if is_reckonable and self.dice.random() < 0.5:
            self.untouched[schedule] = body["when"]
            return
        for _ in range(self.dice.randint(0, 3)):
            await asyncio.sleep(self.dice.uniform(0, 8))
            await self._change(schedule, body)

    async def _change(self, schedule: UUID, body: dict[str, Any]) -> None:
        named = {"id": str(schedule)}
        verb = self.dice.choice(
            ["schedule.pause", "schedule.resume", "schedule.cancel", "schedule.put",
             "schedule.trigger", LATER],
        )  # fmt: skip
        if verb in ("schedule.put", LATER):
            again = body | {"expected_version": "any", "when": self._when()}
            if verb == LATER:
                again["effective_at"] = self._soon(8)
            await self.ask("schedule.put", again, schedule)
            return
        asked_at = self.now()
        answer = await self.ask(verb, named, schedule)
        if verb == "schedule.cancel" and answer["ok"]:
            self.witness.cancelled.setdefault(schedule, Cancelled(asked_at, self.now()))
        if verb == "schedule.trigger" and answer["ok"]:
            self.triggered.append(RunKey.parse(answer["run_id"]))

    async def resolve(self, run: RunKey) -> None:
        """What is held rests for a stated reason, until a person says what became of it."""
        verdict = self.dice.choice(["succeeded", "skipped", "retry"])
        await self.ask("run.resolve", {"run_id": str(run), "as": verdict})

    async def resume_all(self) -> None:
        for schedule in self.schedules:
            if schedule not in self.untouched:
                await self.ask("schedule.resume", {"id": str(schedule)}, schedule)

    async def ask(self, verb: str, body: dict[str, Any], schedule: UUID | None = None) -> Any:
        """Sent until it is answered; the first answer is the one that stands."""
        self.sent += 1
        name = f"user.{self.sent}"
        if schedule and verb in ("schedule.put", "schedule.resume"):  # it may run again
            self.witness.cancelled.pop(schedule, None)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        command = Message(
            COMMANDS, message_key(TENANT, verb), orjson.dumps(body), name,
            reply_to=name, correlation_id=name,
        )  # fmt: skip
        self.broker.hear[name] = lambda told: _set(answer, orjson.loads(told))
        while not answer.done():
            self.trace(f"user sends {verb} {_told(body)}")
            self.broker.publish(command)
            await asyncio.wait([answer], timeout=PATIENCE)
        self.trace(f"user hears {verb}: {answer.result().get('status', answer.result())}")
        return answer.result()

    def _when(self) -> dict[str, Any]:
        dice = self.dice
        match dice.randrange(4):
            case 0:
                return {"at": self._soon(20)}
            case 1:
                return {"now": True}
            case 2:
                every = f"{dice.randint(1, 5)}s"
                return {"every": every, "times": dice.randint(1, 4), "from": "completion"}
            case _:
                return {"every": f"{dice.randint(1, 5)}s", "times": dice.randint(1, 4)}

    def _soon(self, seconds: float) -> str:
        return instant_text(
            truncate_ms(self.now() + timedelta(seconds=self.dice.uniform(0, seconds)))
        )

    def _body(self, number: int) -> dict[str, Any]:
        dice = self.dice
        backoff = {"base": "1s", "cap": "5s", "jitter": dice.choice(["none", "full"])}
        body = {
            "key": f"schedule-{number}",
            "when": self._when(),
            "target": {"task": {"name": TASK}},
            "timeout": "20s",
            "retry": {"max_attempts": dice.randint(1, 4), "backoff": backoff},
            "overlap": dice.choice(["allow", "allow", "skip", "queue", "replace"]),
            "on_unknown": dice.choice(["retry", "retry", "skip", "block"]),
            "class": dice.choice(["normal", "critical"]),
            "catch_up": {"mode": "all"},
            "priority": dice.randint(1, 10),
        }
        return body | ({"expires_after": "20s"} if dice.random() < 0.2 else {})


def _told(body: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in body.items())[:120]


def _set(answer: "asyncio.Future[Any]", told: Any) -> None:
    if not answer.done():
        answer.set_result(told)
