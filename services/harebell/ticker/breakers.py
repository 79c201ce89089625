"""Circuit breakers on record: what dispatchers found, what people force; told to dispatchers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import structlog
from pydantic import TypeAdapter

from harebell.contract import names
from harebell.contract.answers import Refusal, refusal
from harebell.contract.breakers import (
    BREAKER_COMMANDS,
    MAX_STANDING,
    BreakerAnswer,
    BreakerClose,
    BreakerCommand,
    BreakerFact,
    BreakerOpen,
    BreakerState,
    ForceFact,
)
from harebell.contract.changes import Change, ChangeItem
from harebell.contract.codec import bundle_of, encode, encode_all, read
from harebell.contract.errors import Malformed, Rejected, Transient
from harebell.contract.events import FACTS, Event, event
from harebell.contract.message import parse
from harebell.contract.names import split_key
from harebell.kernel.amqp.consume import DONE, Delivery, Outcome
from harebell.kernel.amqp.events import Fact, tell
from harebell.kernel.amqp.publish import Outgoing, Publisher
from harebell.kernel.amqp.replies import answer, answerable, reply
from harebell.kernel.bus import BREAKERS_KEY
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import passing_faults
from harebell.ticker import breaker_store as store

EVERY: Final = 30.0  # seconds between words to dispatchers when nothing has happened

FORCED: Final = "breaker.forced"
RELEASED: Final = "breaker.released"

_CHANGE: Final = TypeAdapter(Change)
_EVENTS: Final = bundle_of(Event)

Answer: TypeAlias = BreakerAnswer | Refusal

log = structlog.get_logger()


@dataclass(slots=True)
class Breakers:
    """The handler of `harebell.breakers`, which one ticker at a time consumes; all tell."""

    pool: asyncpg.Pool
    publisher: Publisher
    clock: Clock
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        for delivery in deliveries:
            match delivery.message.exchange:
                case names.CHANGES:
                    await self._command(read(_CHANGE, delivery.own_body))
                case names.EVENTS:
                    await self._found(delivery)
                case _:  # a dispatcher asks: the word to all is the answer
                    self._asked.set()
        return [DONE] * len(deliveries)

    async def keep(self) -> None:
        """Until cancelled. What was lost on its way to dispatchers is told again."""
        while True:
            try:
                await self._lapse()
                await self.say()
            except Transient as error:
                log.warning("breakers not told", error=error.code, reason=error.reason)
            try:
                await asyncio.wait_for(self._asked.wait(), EVERY)
            except TimeoutError:
                continue

    async def say(self) -> None:
        """To every dispatcher, how all breakers stand. Nobody need be there to hear it."""
        self._asked.clear()
        with passing_faults():
            standing = await store.standing(self.pool, self.clock.now())
        word = Outgoing(
            exchange=names.CONTROL,
            routing_key=BREAKERS_KEY,
            body=encode(standing),
            type=names.message_type("breaker.standing"),
            message_id=f"breakers/{standing.as_of.isoformat()}",
        )
        await self.publisher.try_all([word])

    async def _found(self, delivery: Delivery) -> None:
        """By a dispatcher; all of them have heard of it as this one has."""
        _, verb = split_key(delivery.routing_key)
        if FACTS.get(verb) is not BreakerFact:
            return
        with passing_faults():
            for each in read(_EVENTS, delivery.own_body):
                await store.found(self.pool, parse(BreakerFact, each.data))

    async def _command(self, change: Change) -> None:
        said = [await self._item(change, item) for item in change.items]
        self._asked.set()
        if change.reply_to is None or not answerable(change.reply_to):
            return
        body = encode(said[0]) if change.single else encode_all(said)
        name = f"{change.correlation_id}/answer"
        await answer(self.publisher, reply(change.reply_to, change.correlation_id, body, name=name))

    async def _item(self, change: Change, item: ChangeItem) -> Answer:
        if item.refusal is not None:
            return item.refusal
        try:
            command = _command(change.verb, item)
            return await self._force(change, item, command)
        except Rejected as error:
            return refusal(error, within="" if change.single else f"[{item.index}]")

    async def _force(self, change: Change, item: ChangeItem, command: BreakerCommand) -> Answer:
        forced, until = _wanted(command)
        at = change.accepted_at
        with passing_faults():
            if forced and await store.forced_besides(self.pool, command.downstream) >= MAX_STANDING:
                raise Malformed(f"over {MAX_STANDING} breakers are forced", code="too_many")
            is_new = await store.force(
                self.pool, command.downstream, forced, at,
                until=until, note=command.note, actor=change.actor,
            )  # fmt: skip
        if not is_new:
            return BreakerAnswer(downstream=command.downstream, status="unchanged", until=until)
        fact = ForceFact(
            downstream=command.downstream,
            forced=forced,
            since=at,
            until=until,
            note=command.note,
            actor=change.actor,
        )
        log.info("breaker ordered", downstream=fact.downstream, forced=forced, index=item.index)
        await tell(self.publisher, [_told(fact, at)])
        status = "automatic" if forced is None else f"forced_{forced}"
        return BreakerAnswer(downstream=command.downstream, status=status, until=until)

    async def _lapse(self) -> None:
        with passing_faults():
            lapsed = await store.lapse(self.pool)
            await store.forget(self.pool)
        facts = [
            ForceFact(downstream=row["downstream"], since=row["forced_at"], note=row["note"])
            for row in lapsed
        ]
        await tell(self.publisher, [_told(fact, fact.since) for fact in facts])


def _command(verb: str, item: ChangeItem) -> BreakerCommand:
    model = BREAKER_COMMANDS.get(verb)
    command = None if model is None else parse(model, item.body)
    if not isinstance(command, BreakerCommand):
        raise Rejected(f"{verb!r} is not a breaker's", code="unknown_command")
    return command


def _wanted(command: BreakerCommand) -> tuple[BreakerState | None, datetime | None]:
    match command:
        case BreakerOpen(until=until):
            return BreakerState.OPEN, until
        case BreakerClose(until=until):
            return BreakerState.CLOSED, until
        case _:
            return None, None


def _told(fact: ForceFact, at: datetime) -> Fact:
    verb = RELEASED if fact.forced is None else FORCED
    id_ = f"{fact.downstream}/{at.isoformat()}"
    told = event(names.OPERATIONS, verb, fact, id_=id_, subject=fact.downstream, at=at)
    return Fact(names.OPERATIONS, verb, told)
