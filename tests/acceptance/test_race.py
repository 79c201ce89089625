"""Cancelled, paused or replaced around the very instant that a run is due, a thousand times."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import asyncpg
import pytest
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in, now, run_id, until

from harebell.contract.errors import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RACES = 1_000
AT_ONCE = 25  # races whose runs are due at one instant
SPACING = timedelta(milliseconds=400)  # between two such instants
AHEAD = 8.0  # seconds from now to the first
PORTION = 500  # schedules of one message
BEFORE, AFTER = timedelta(milliseconds=400), timedelta(milliseconds=200)  # changed around it
GOLDEN = 0.618033988749895  # its multiples spread evenly over [0, 1), however many there are
SECOND = timedelta(seconds=1)
GRACE = 2 * SECOND  # then nothing of an old version may start, whatever was said


class Change(StrEnum):
    CANCEL = "cancel"
    PAUSE = "pause"
    RETARGET = "retarget"  # the same times, another target
    MOVE = "move"  # other times too


HALTS = {Change.CANCEL: "cancelled", Change.PAUSE: "paused"}


@dataclass(frozen=True)
class Race:
    """A schedule with a run due at `due_at`, and what is done to it around then."""

    number: int
    due_at: datetime

    @property
    def key(self) -> str:
        return f"race-{self.number}"

    @property
    def change(self) -> Change:
        return list(Change)[self.number % len(Change)]

    @property
    def is_rhythm(self) -> bool:
        """Else a one-shot."""
        return self.number // len(Change) % 2 == 1

    @property
    def changed_at(self) -> datetime:
        return self.due_at - BEFORE + (BEFORE + AFTER) * (self.number * GOLDEN % 1)

    @property
    def old(self) -> list[datetime]:
        around = (-1, 0, 1) if self.is_rhythm else (0,)
        return [self.due_at + k * SECOND for k in around]

    @property
    def new(self) -> list[datetime]:
        if self.change is Change.RETARGET:
            return self.old
        later = (1.5, 2.5) if self.is_rhythm else (1.5,)
        return [self.due_at + k * SECOND for k in later]

    def body(self, says: str, target: Target) -> dict[str, Any]:
        hook = target.http("race")
        hook["http"]["json"] = {"says": says}
        times = self.new if says == "new" else self.old
        when = {"every": "1s", "start": times[0].isoformat(), "end": times[-1].isoformat()}
        if not self.is_rhythm:
            when = {"at": times[0].isoformat()}
        return {"key": self.key, "when": when, "target": hook}


@dataclass(frozen=True)
class Told:
    """The acknowledgement as its asker got it."""

    at: datetime
    in_flight: frozenset[str]
    refused: str | None = None


@dataclass(frozen=True)
class Finish:
    """A race that is over: what was said, what the target saw, what the ledger says."""

    race: Race
    schedule_id: str
    told: Told
    calls: Sequence[Call]
    rows: Sequence[asyncpg.Record]
    replaced_at: datetime | None  # acceptance of the new version

    def wrongs(self) -> Iterator[str]:
        for wrong in (*self._told_wrong(), *self._doubled(), *self._off_record(), *self._owed()):
            yield f"{self.race}: {wrong}; {self.told}"

    def _told_wrong(self) -> Iterator[str]:
        """What the old version did after its successor had been acknowledged."""
        for call in self.calls:
            late = call.started_at - self.told.at
            if not says_old(call) or late <= timedelta(0):
                continue
            if call.run_id not in self.told.in_flight:
                yield f"{call.run_id} of the old version started {late} after"
            if late > GRACE:
                yield f"{call.run_id} started {late} after"
        for row in self.rows:
            name = name_of(row)
            is_old = row["version"] == 1 and row["attempt"] > 0
            if is_old and name not in self.told.in_flight and row["finished_at"] > self.told.at:
                yield f"{name} was claimed and had not ended, and was not named"
        yield from (
            f"{name} never was" for name in self.told.in_flight - set(map(name_of, self.rows))
        )

    def _doubled(self) -> Iterator[str]:
        for name, times in Counter(call.run_id for call in self.calls).items():
            if times > 1:
                yield f"{name} ran {times} times"

    def _off_record(self) -> Iterator[str]:
        """The ledger and the target's file agree about what ran, and as which version."""
        began = {name_of(row): row for row in self.rows if row["attempt"]}
        stopped = {name for name, row in began.items() if self._was_stopped(row)}
        recorded = {name: row["version"] for name, row in began.items() if name not in stopped}
        called = {call.run_id: 1 if says_old(call) else 2 for call in self.calls}
        if recorded != {name: version for name, version in called.items() if name not in stopped}:
            yield f"the ledger has {recorded}, the target {called}"
        withdrawn = ("cancelled", HALTS.get(self.race.change, "superseded"))
        for row in self.rows:
            ended, due = (row["state"], row["reason"]), ("succeeded", None)
            if ended != (due if name_of(row) in recorded else withdrawn):
                yield f"{name_of(row)} ended {ended} after {row['attempt']} attempts"

    def _was_stopped(self, row: asyncpg.Record) -> bool:
        """A cancel ends what has begun already, perhaps before the target has heard of it."""
        is_named = name_of(row) in self.told.in_flight
        return self.race.change is Change.CANCEL and is_named and row["state"] == "cancelled"

    def _owed(self) -> Iterator[str]:
        """A new version owes its own times, and takes over what was overdue."""
        at, called = self.replaced_at, {call.scheduled_for for call in self.calls}
        if at is None:
            return
        expected = {*(t for t in self.race.old if t <= at), *(t for t in self.race.new if t >= at)}
        if self.race.change is Change.RETARGET or not self.race.is_rhythm:
            expected |= set(self.race.new)
        if missing := expected - called:
            yield f"accepted at {at}, {sorted(map(str, missing))} never ran"
        if not called <= {*self.race.old, *self.race.new}:
            yield "an instant ran that nobody owed"

    @property
    def kind(self) -> str:
        """Which side won, as far as the instant itself is concerned."""
        name = run_id(self.schedule_id, self.race.due_at)
        ran = next((call for call in self.calls if call.run_id == name), None)
        if name in self.told.in_flight:
            return "named, ran" if ran else "named, stopped"
        if ran is None:
            return "withdrawn"
        return "ran before" if says_old(ran) else "ran as new"


def says_old(call: Call) -> bool:
    return "old" in call.body


def name_of(row: asyncpg.Record) -> str:
    return run_id(str(row["schedule_id"]), row["scheduled_for"])


async def change(race: Race, tenant: Tenant, target: Target) -> Told:
    await asyncio.sleep((race.changed_at - now()).total_seconds())
    harebell = tenant.harebell
    try:
        match race.change:
            case Change.CANCEL:
                response = await harebell.cancel(key=race.key)
            case Change.PAUSE:
                response = await harebell.pause(key=race.key)
            case Change.RETARGET | Change.MOVE:
                body = race.body("new", target) | {"expected_version": "any"}
                response = await harebell.put(body)
    except CommandRejected as refused:
        return Told(now(), frozenset(), refused.code)
    return Told(now(), frozenset(response.in_flight))


async def run_all(races: Sequence[Race], tenant: Tenant, target: Target) -> list[Finish]:
    ids: list[str] = []
    for first in range(0, len(races), PORTION):
        bodies = [race.body("old", target) for race in races[first : first + PORTION]]
        ids += [str(response.id) for response in await tenant.harebell.put_many(bodies) if response.ok]
    assert now() < races[0].changed_at - SECOND, "too slow to race"
    told = await asyncio.gather(*(change(race, tenant, target) for race in races))

    async def all_over() -> bool:
        return all(row["finished_at"] is not None for row in await tenant.runs())

    last = max([*(t for race in races for t in race.new), *(each.at for each in told)])
    await asyncio.sleep((last + GRACE + SECOND - now()).total_seconds())
    await until(all_over, what="the end of all runs")
    return await finishes(races, ids, told, tenant, target)


async def finishes(
    races: Sequence[Race], ids: Sequence[str], told: Sequence[Told], tenant: Tenant, target: Target
) -> list[Finish]:
    calls, rows = defaultdict(list), defaultdict(list)
    for call in target.calls("race"):
        calls[call.schedule_id].append(call)
    for row in await tenant.runs():
        rows[str(row["schedule_id"])].append(row)
    versions = await tenant.ledger.fetch(
        "SELECT schedule_id, accepted_at FROM schedule_versions "
        "WHERE version = 2 AND schedule_id = ANY($1::uuid[])",
        ids,
    )
    replaced = {str(row["schedule_id"]): row["accepted_at"] for row in versions}
    return [
        Finish(race, id_, each, calls[id_], rows[id_], replaced.get(id_))
        for race, id_, each in zip(races, ids, told, strict=True)
    ]


@pytest.mark.requirement("S10", "ASK-4")
async def test_changed_around_its_instant_a_run_is_of_one_version_which_the_answer_names(
    tenant: Tenant, target: Target
) -> None:
    first = time_in(AHEAD)
    races = [Race(number, first + number // AT_ONCE * SPACING) for number in range(RACES)]

    finished = await run_all(races, tenant, target)

    won = Counter((finish.race.change, finish.kind) for finish in finished)
    log.info("who won: %s", {" ".join(each): count for each, count in sorted(won.items())})
    assert [wrong for finish in finished for wrong in finish.wrongs()] == []
    for finish in finished:
        refused = finish.told.refused
        # only of what is over by then, which a pause says
        assert refused is None or (refused, finish.race.change) == ("not_active", Change.PAUSE)
        assert refused is None or finish.kind == "ran before"
    kinds = {finish.kind for finish in finished}
    assert {"withdrawn", "named, ran", "ran before", "ran as new"} <= kinds, "there was no race"
