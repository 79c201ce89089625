"""Batches of commands on the in-memory ledger: repeats, the commit and moved runs."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import orjson
import pytest
from tests.fakes.ledger.ledger import open_ledger
from tests.fakes.ledger.pool import Pool
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import COMMAND_RESULTS, STATES, VERSIONS
from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.fakes.schedules import HORIZON, TASK

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands, DelayedDelivery
from harebell.contract.amqp_names import DEAD
from harebell.contract.commands import SCHEDULE_COMMANDS
from harebell.contract.errors import BrokerUnavailable
from harebell.contract.ids import schedule_id
from harebell.domain.sender import IdentityMode
from harebell.domain.tenant_policy import TenantPolicies
from harebell.messaging.accepted_messages import CommandReplies
from harebell.runtime.clock import Clock
from harebell.runtime.computations import Computations
from harebell.storage.engine import database_time
from harebell.ticker.commands.apply import CommandApplier
from harebell.ticker.commands.batch import BatchItem, CommandBatch
from harebell.ticker.commands.handlers import CommandContext
from harebell.ticker.store.schedule_counts import ScheduleCounts
from harebell.ticker.store.schedules import STATEMENTS
from harebell.ticker.store.versions import VersionCache

TENANT, KEY = "default", "daily"
ID = schedule_id(TENANT, KEY)
PUT = {"key": KEY, "when": {"after": "60s"}, "target": TASK}
TRIGGER = {"key": KEY}


@dataclass
class ApplierHarness:
    """A command applier, its ledger and its publisher."""

    ledger: Pool = field(default_factory=open_ledger)
    publisher: FakePublisher = field(default_factory=FakePublisher)
    applier: CommandApplier = field(init=False)

    async def open(self) -> None:
        clock = Clock(lambda: database_time(cast("Any", self.ledger)))
        await clock.refresh()
        self.applier = CommandApplier(
            pool=cast("Any", self.ledger),
            publisher=self.publisher,
            replies=CommandReplies(
                RecordedReplies(self.publisher.published), IdentityMode.VERIFIED
            ),
            clock=clock,
            versions=VersionCache(),
            horizon=HORIZON,
            on_saved=lambda _: None,
            schedule_counts=ScheduleCounts(TenantPolicies.unrestricted()),
        )

    async def apply(
        self,
        *commands: tuple[str, str, dict[str, Any]],
        tenant: str = TENANT,
        age: timedelta = timedelta(),
        delayed: DelayedDelivery | None = None,
    ) -> list[bytes]:
        """Apply commands (request id, verb, body) in one batch, and return their responses.

        `age` is the time since intake accepted them.
        """
        batch = CommandBatch()
        for request_id, verb, body in commands:
            accepted = AcceptedCommand(index=0, request_id=request_id, schedule_id=ID, body=body)
            message = AcceptedCommands(
                tenant=tenant,
                verb=verb,
                accepted_at=self.ledger.store.now() - age,
                single=True,
                delayed=delayed,
                items=[accepted],
            )
            batch.messages.append((message, [self._item(message, accepted)]))
        await self.applier.apply_batch(batch)
        return [item.response_body for item in batch.items]

    def _item(self, message: AcceptedCommands, accepted: AcceptedCommand) -> BatchItem:
        command = SCHEDULE_COMMANDS[message.verb].model_validate(accepted.body)
        context = CommandContext(message.tenant, command, ID, message.accepted_at, "tester")
        return BatchItem(message=message, accepted=accepted, context=context)

    @property
    def runs(self) -> list[Run]:
        """The committed runs, in the order of their keys."""
        return [run for _, run in sorted(self.ledger.store.tables[RUNS].items())]

    def rows(self, table: str) -> int:
        return len(self.ledger.store.tables[table])


@pytest.fixture
async def harness() -> ApplierHarness:
    harness = ApplierHarness()
    await harness.open()
    return harness


async def test_tickets_are_published_before_the_commit(harness: ApplierHarness) -> None:
    committed: list[int] = []
    harness.publisher.before_publish = lambda: committed.append(harness.rows(RUNS))

    await harness.apply(("r-1", "schedule.put", PUT))

    assert committed == [0]
    assert [ticket.key for ticket in harness.publisher.tickets] == [r.key for r in harness.runs]


async def test_batch_changes_nothing_when_its_tickets_cannot_be_published(
    harness: ApplierHarness,
) -> None:
    harness.publisher.failures = 1

    with pytest.raises(BrokerUnavailable):
        await harness.apply(("r-1", "schedule.put", PUT))

    assert [harness.rows(each) for each in (RUNS, STATES, VERSIONS, COMMAND_RESULTS)] == [0] * 4


async def test_repeated_command_has_one_effect_and_its_first_response(
    harness: ApplierHarness,
) -> None:
    await harness.apply(("r-1", "schedule.put", PUT))

    first = await harness.apply(("r-2", "schedule.trigger", TRIGGER))
    again = await harness.apply(("r-2", "schedule.trigger", TRIGGER))
    other = await harness.apply(("r-3", "schedule.trigger", TRIGGER))

    assert again == first != other
    assert len(harness.runs) == 3


async def test_command_that_is_repeated_in_one_batch_has_one_effect(
    harness: ApplierHarness,
) -> None:
    trigger = ("r-2", "schedule.trigger", TRIGGER)

    _, first, again = await harness.apply(("r-1", "schedule.put", PUT), trigger, trigger)

    assert again == first
    assert len(harness.runs) == 2


async def test_overdue_run_that_moves_to_a_new_version_has_a_new_ticket(
    harness: ApplierHarness,
) -> None:
    await harness.apply(("r-1", "schedule.put", {**PUT, "when": {"now": True}}))
    (before,) = harness.runs
    published = len(harness.publisher.tickets)
    changed = {**PUT, "when": {"every": "1h"}, "priority": 9, "expected_version": 1}

    await harness.apply(("r-2", "schedule.put", changed))

    after = next(run for run in harness.runs if run.key == before.key)
    assert (after.version, after.seq) == (2, before.seq + 1)
    moved = [t for t in harness.publisher.tickets[published:] if t.key == before.key]
    assert [(ticket.seq, ticket.priority) for ticket in moved] == [(after.seq, 9)]
    assert after.due_at - before.due_at == timedelta(0)


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("schedule.pause", {"id": str(ID)}),
        ("schedule.skip", {"id": str(ID), "at": "2026-11-20T09:00:00Z"}),
        ("run.cancel", {"run_id": f"{ID}@20261120T090000000Z"}),
        ("run.resolve", {"run_id": f"{ID}@20261120T090000000Z", "as": "skipped"}),
    ],
)
async def test_command_that_names_a_row_of_another_tenant_does_not_lock_it(
    harness: ApplierHarness, verb: str, body: dict[str, Any]
) -> None:
    await harness.apply(("r-1", "schedule.put", PUT))

    async with harness.ledger.acquire() as connection, connection.transaction():
        await connection.fetch(STATEMENTS.load_schedules, [ID])
        async with asyncio.timeout(1):
            (response,) = await harness.apply(("r-2", verb, body), tenant="another")

    assert orjson.loads(response)["error"]["code"] == "not_found"


@pytest.mark.requirement("P6")
async def test_repeated_backfill_is_not_computed_again(harness: ApplierHarness) -> None:
    """A long message that the broker delivers again therefore makes progress."""
    now = harness.ledger.store.now()
    body = {"key": KEY, "from": now - timedelta(hours=1), "to": now, "dry_run": True}
    await harness.apply(("r-1", "schedule.put", {**PUT, "when": {"every": "30s"}}))
    first = await harness.apply(("r-2", "schedule.backfill", body))
    harness.applier.computations = Computations(max_cpu=-1)  # refuses each search

    repeated = await harness.apply(("r-2", "schedule.backfill", body))
    (other,) = await harness.apply(("r-3", "schedule.backfill", body))

    assert b'"previewed"' in first[0]
    assert repeated == first
    assert b'"too_expensive"' in other


async def test_delayed_message_before_the_last_change_becomes_a_dead_letter(
    harness: ApplierHarness,
) -> None:
    amqp = {"exchange": "orders.due", "routing_key": "created", "text": "new"}
    message = {**PUT, "target": {"amqp": amqp}}
    await harness.apply(("r-1", "schedule.put", PUT))
    await harness.apply(
        ("r-2", "schedule.put", message), age=timedelta(seconds=1), delayed=DelayedDelivery.FIRST
    )

    (dead,) = (each for each in harness.publisher.published if each.exchange == DEAD)
    (letter,) = orjson.loads(dead.body)

    assert dead.routing_key == "message.harebell.delayed.orders"
    assert (letter["reason"], letter["tenant"]) == ("stale", TENANT)
    assert harness.rows(VERSIONS) == 1
