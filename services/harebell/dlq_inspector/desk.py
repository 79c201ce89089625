"""Working at the desk: replays, drops and questions, in the order they come."""

from collections import Counter
from collections.abc import Awaitable
from datetime import datetime
from typing import TypeAlias

import asyncpg
import structlog

from harebell.contract.addressed import Addressed
from harebell.contract.answers import DlqAnswer, JobAnswer, Refusal, refusal
from harebell.contract.changes import Change, ChangeItem
from harebell.contract.commands import (
    DLQ_COMMANDS,
    DlqArchive,
    DlqDrop,
    DlqEdit,
    DlqGroupCommand,
    DlqImport,
    DlqJobCommand,
    DlqMute,
    DlqReopen,
    DlqReplay,
    DlqStart,
)
from harebell.contract.desk import GroupState
from harebell.contract.errors import Malformed, Rejected
from harebell.contract.message import parse, shown
from harebell.contract.scalars import Json
from harebell.dlq_inspector import groups, store
from harebell.dlq_inspector.core.verdict import (
    Status,
    drop_results,
    group_results,
)
from harebell.dlq_inspector.editing import edit
from harebell.dlq_inspector.foreman import Foreman
from harebell.dlq_inspector.importing import keep_told
from harebell.dlq_inspector.series import Order, Results, begin
from harebell.kernel import failpoint, metrics
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.authorising import authorising
from harebell.kernel.clock import Clock
from harebell.kernel.db.engine import passing_faults
from harebell.kernel.routing import Routed

Answer: TypeAlias = DlqAnswer | JobAnswer | Refusal

log = structlog.get_logger()


class Desk:
    """Commands that intake has checked. Each is one transaction, of one tenant's letters."""

    def __init__(
        self, pool: asyncpg.Pool, publisher: Publisher, clock: Clock, foreman: Foreman
    ) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._foreman = foreman

    async def apply(self, change: Change) -> list[Answer]:
        """An answer for each item, in order; what was done before stays done if it comes again."""
        return [await self._item(change, item) for item in change.items]

    async def _item(self, change: Change, item: ChangeItem) -> Answer:
        if item.refusal is not None:
            return item.refusal
        try:
            command = _command(change.verb, item.body)
        except Rejected as error:
            return refusal(error, within="" if change.single else f"[{item.index}]")
        return await self._done(change, item, command)

    async def _done(self, change: Change, item: ChangeItem, command: Addressed) -> Answer:
        work: Awaitable[Answer]
        match command:
            case DlqReplay():
                work = self._replay(change, command)
            case DlqDrop():
                work = self._drop(change, command)
            case DlqEdit():
                work = self._edit(change, command)
            case DlqImport():
                work = self._import(change, command)
            case DlqGroupCommand():
                work = self._change_groups(change, command)
            case DlqStart():
                work = self._foreman.start(change, item, command)
            case DlqJobCommand():
                work = self._foreman.steer(change, command)
            case _:
                raise TypeError(f"{change.verb} is nobody's")
        return await work

    async def _replay(self, change: Change, command: DlqReplay) -> DlqAnswer:
        async with authorising(self._pool, self._publisher, self._clock) as authority:
            order = Order(change.tenant, change.actor, command.note)
            results, tickets = await begin(authority.connection, order, command.ids)
            await authority.publish(map(Routed.of, tickets))
            await failpoint.reach("dlq_inspector.before_commit")
        metrics.REPLAYS.inc(_tell(change, command.note, results)[Status.REPLAYED])
        return DlqAnswer(results=results)

    async def _drop(self, change: Change, command: DlqDrop) -> DlqAnswer:
        with passing_faults():
            async with self._pool.acquire() as connection, connection.transaction():
                held = await store.lock(connection, change.tenant, command.ids)
                dropped = [id_ for id_, letter in held.items() if letter.is_open]
                await store.drop(connection, dropped, actor=change.actor, note=command.note)
        results = drop_results(command.ids, held)
        _tell(change, command.note, results)
        return DlqAnswer(results=results)

    async def _edit(self, change: Change, command: DlqEdit) -> DlqAnswer:
        with passing_faults():
            async with self._pool.acquire() as connection, connection.transaction():
                results = await edit(connection, change, command)
        _tell(change, command.note, results)
        return DlqAnswer(results=results)

    async def _import(self, change: Change, command: DlqImport) -> DlqAnswer | Refusal:
        try:
            with passing_faults():
                async with self._pool.acquire() as connection:
                    results = await keep_told(connection, change, command)
        except Rejected as error:
            return refusal(error)
        _tell(change, command.note, results)
        return DlqAnswer(results=results)

    async def _change_groups(self, change: Change, command: DlqGroupCommand) -> DlqAnswer:
        state, until = _decided(command)
        with passing_faults():
            async with self._pool.acquire() as connection:
                changed = await groups.change(
                    connection, change.tenant, command.groups,
                    actor=change.actor, note=command.note, state=state, until=until,
                )  # fmt: skip
        results = group_results(command.groups, changed, state)
        _tell(change, command.note, results)
        return DlqAnswer(results=results)


def _decided(command: DlqGroupCommand) -> tuple[GroupState | None, datetime | None]:
    """The state that the groups come into, and until when; None leaves theirs."""
    match command:
        case DlqMute(until=until):
            return GroupState.MUTED, until
        case DlqArchive():
            return GroupState.ARCHIVED, None
        case DlqReopen():
            return GroupState.OPEN, None
        case _:
            return None, None


def _command(verb: str, body: Json) -> Addressed:
    if verb not in DLQ_COMMANDS:
        raise Malformed(f"{shown(verb)} is no command to the desk", code="unknown_command")
    return parse(DLQ_COMMANDS[verb], body)


def _tell(change: Change, note: str | None, results: Results) -> Counter[str]:
    counts = Counter(results.values())
    log.info(
        "desk command",
        verb=change.verb,
        tenant=change.tenant,
        actor=change.actor,
        note=note,
        results=results,
    )
    return counts
