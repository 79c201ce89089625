"""The users of a scenario, who create and change schedules and wait for each response."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

import orjson
from tests.simulation.bus import FakeBroker, Message
from tests.simulation.invariants import Cancellation, InvariantChecker
from tests.simulation.services import TASK

from harebell.contract.amqp_names import COMMANDS, message_key
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.types import instant_text, truncate_ms

RESPONSE_TIMEOUT: Final = 8.0  # seconds until a command is sent again with the same id
TENANT: Final = "acme"
LATER_PUT: Final = "a put with effective_at"
MAX_LATER_PUTS: Final = 4  # puts with effective_at, one after another


@dataclass(kw_only=True)
class Users:
    """The users, with the schedules and runs that they expect at the end."""

    random: Random
    broker: FakeBroker
    invariants: InvariantChecker
    now: Callable[[], datetime]
    trace: Callable[[str], None]
    schedules: list[UUID] = field(default_factory=list)
    unchanged: dict[UUID, dict[str, Any]] = field(default_factory=dict)  # rules by schedule
    triggered: list[RunKey] = field(default_factory=list)
    scheduled: set[tuple[UUID, int]] = field(default_factory=set)  # versions of later changes
    superseded: set[tuple[UUID, int]] = field(default_factory=set)  # as responses named them
    sent: int = 0

    async def run(self, seconds: float) -> None:
        """Put new schedules in the first half of the time, and change them until its end."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.random.randint(2, 5)):
                delay = self.random.uniform(0, seconds / 2)
                tasks.create_task(self._use_schedule(number, delay))

    async def _use_schedule(self, number: int, delay: float) -> None:
        await asyncio.sleep(delay)
        body = self._body(number)
        schedule = schedule_id(TENANT, body["key"])
        self.schedules.append(schedule)
        response = await self.request("schedule.put", body, schedule)
        assert response["ok"], response
        is_predictable = "from" not in body["when"]  # a time after completion depends on its run
        if is_predictable and self.random.random() < 0.5:
            self.unchanged[schedule] = body["when"]
            return
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(self.random.uniform(0, 8))
            await self._change(schedule, body)

    async def _change(self, schedule: UUID, body: dict[str, Any]) -> None:
        """Send one random change. A put later sends up to four puts in any order of their times."""
        verbs = [
            "schedule.pause",
            "schedule.resume",
            "schedule.cancel",
            "schedule.put",
            "schedule.trigger",
            "schedule.delete",
            LATER_PUT,
            LATER_PUT,
        ]
        verb = self.random.choice(verbs)
        if verb in ("schedule.put", LATER_PUT):
            revive = {"revive": True} if self.random.random() < 0.7 else {}
            count = self.random.randint(1, MAX_LATER_PUTS) if verb == LATER_PUT else 1
            for _ in range(count):
                new_body = body | {"expected_version": "any", "when": self._when(), **revive}
                if verb == LATER_PUT:
                    new_body["effective_at"] = self._time_within(8)
                response = await self.request("schedule.put", new_body, schedule)
                self._record_versions(schedule, response)
            return
        sent_at = self.now()
        response = await self.request(verb, {"id": str(schedule)}, schedule)
        self._record_versions(schedule, response)
        if verb == "schedule.cancel" and response["ok"]:
            cancellation = Cancellation(sent_at=sent_at, answered_at=self.now())
            self.invariants.cancelled.setdefault(schedule, cancellation)
        if verb == "schedule.trigger" and response["ok"]:
            self.triggered.append(RunKey.parse(response["run_id"]))

    def _record_versions(self, schedule: UUID, response: dict[str, Any]) -> None:
        """Note the pending version that a response announces, and those that it supersedes."""
        if response.get("status") == "change_scheduled":
            self.scheduled.add((schedule, response["pending_version"]))
        for each in response.get("supersedes", ()):
            self.superseded.add((schedule, each["version"]))

    async def resolve(self, run: RunKey) -> None:
        """Resolve an unresolved run with a random verdict of a person."""
        verdict = self.random.choice(["succeeded", "skipped", "retry"])
        await self.request("run.resolve", {"run_id": str(run), "as": verdict})

    async def resume_all(self) -> None:
        for schedule in self.schedules:
            if schedule not in self.unchanged:
                await self.request("schedule.resume", {"id": str(schedule)}, schedule)

    async def request(self, verb: str, body: dict[str, Any], schedule: UUID | None = None) -> Any:
        """Send a command until it receives a response, and return the first response."""
        self.sent += 1
        name = f"user.{self.sent}"
        reply_queue = f"{TENANT}.{name}"
        if schedule and verb in ("schedule.put", "schedule.resume"):  # its runs may start again
            self.invariants.cancelled.pop(schedule, None)
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        command = Message(
            exchange=COMMANDS,
            routing_key=message_key(TENANT, verb),
            body=orjson.dumps(body),
            message_id=name,
            reply_to=reply_queue,
            correlation_id=name,
        )
        self.broker.reply_handlers[reply_queue] = lambda reply: _set(response, orjson.loads(reply))
        while not response.done():
            self.trace(f"user sends {verb} {_shorten(body)}")
            self.broker.publish(command)
            await asyncio.wait([response], timeout=RESPONSE_TIMEOUT)
        result = response.result()
        self.trace(f"user receives {verb}: {result.get('status', result)}")
        return result

    def _when(self) -> dict[str, Any]:
        random = self.random
        match random.randrange(4):
            case 0:
                return {"at": self._time_within(20)}
            case 1:
                return {"now": True}
            case 2:
                every = f"{random.randint(1, 5)}s"
                return {"every": every, "times": random.randint(1, 4), "from": "completion"}
            case _:
                return {"every": f"{random.randint(1, 5)}s", "times": random.randint(1, 4)}

    def _time_within(self, seconds: float) -> str:
        delay = timedelta(seconds=self.random.uniform(0, seconds))
        return instant_text(truncate_ms(self.now() + delay))

    def _body(self, number: int) -> dict[str, Any]:
        random = self.random
        backoff = {"base": "1s", "cap": "5s", "jitter": random.choice(["none", "additive"])}
        body = {
            "key": f"schedule-{number}",
            "when": self._when(),
            "target": {"task": {"name": TASK}},
            "timeout": "20s",
            "retry": {"max_attempts": random.randint(1, 4), "backoff": backoff},
            "overlap": random.choice(["allow", "allow", "skip", "queue", "replace"]),
            "on_unknown": random.choice(["retry", "retry", "skip", "block"]),
            "class": random.choice(["normal", "critical"]),
            "catch_up": {"mode": "all"},
            "priority": random.randint(1, 10),
        }
        return body | ({"expires_after": "20s"} if random.random() < 0.2 else {})


def _shorten(body: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in body.items())[:120]


def _set(response: "asyncio.Future[Any]", result: Any) -> None:
    if not response.done():
        response.set_result(result)
