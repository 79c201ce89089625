"""A thousand races between the due time of a run and a cancel, a pause or a new version."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import asyncpg
import pytest
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, now, run_id, time_in
from tests.rig.polling import until

from harebell.contract.errors import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

RACES = 1_000
RACES_PER_TIME = 25  # races whose runs have one due time
SPACING = timedelta(milliseconds=400)  # between two due times
FIRST_DUE = 8.0  # seconds
BATCH_SIZE = 500  # schedules in one message
BEFORE, AFTER = (
    timedelta(milliseconds=400),
    timedelta(milliseconds=200),
)  # range of the change around the due time
GOLDEN_RATIO = 0.618033988749895  # the fractions of its multiples are evenly distributed in [0, 1)
SECOND = timedelta(seconds=1)
GRACE = 2 * SECOND  # after this time, no run of the old version may start


class Change(StrEnum):
    CANCEL = "cancel"
    PAUSE = "pause"
    RETARGET = "retarget"  # another target and the same times
    MOVE = "move"  # another target and other times


# The code with which each change of an ended schedule is rejected.
REJECTIONS: Final = {
    Change.PAUSE: "not_active",
    Change.RETARGET: "schedule_ended",
    Change.MOVE: "schedule_ended",
}


STOPPED_STATES = {Change.CANCEL: "cancelled", Change.PAUSE: "paused"}


@dataclass(frozen=True)
class Race:
    """A schedule with a run that is due at `due_at`, and a change around that time."""

    number: int
    due_at: datetime

    @property
    def key(self) -> str:
        return f"race-{self.number}"

    @property
    def change(self) -> Change:
        return list(Change)[self.number % len(Change)]

    @property
    def is_recurring(self) -> bool:
        """Return whether the schedule is recurring and not a one-shot schedule."""
        return self.number // len(Change) % 2 == 1

    @property
    def changed_at(self) -> datetime:
        return self.due_at - BEFORE + (BEFORE + AFTER) * (self.number * GOLDEN_RATIO % 1)

    @property
    def old(self) -> list[datetime]:
        around = (-1, 0, 1) if self.is_recurring else (0,)
        return [self.due_at + k * SECOND for k in around]

    @property
    def new(self) -> list[datetime]:
        if self.change is Change.RETARGET:
            return self.old
        later = (1.5, 2.5) if self.is_recurring else (1.5,)
        return [self.due_at + k * SECOND for k in later]

    def body(self, version_name: str, target: Target) -> dict[str, Any]:
        hook = target.http("race")
        hook["http"]["json"] = {"says": version_name}
        times = self.new if version_name == "new" else self.old
        when = {"every": "1s", "start": times[0].isoformat(), "end": times[-1].isoformat()}
        if not self.is_recurring:
            when = {"at": times[0].isoformat()}
        return {"key": self.key, "when": when, "target": hook}


@dataclass(frozen=True)
class Acknowledgement:
    """The response to a change and the time of its arrival."""

    at: datetime
    in_flight: frozenset[str]
    rejected: str | None = None


@dataclass(frozen=True, kw_only=True)
class FinishedRace:
    """A race that has ended, with its response, the calls of the target and the ledger rows."""

    race: Race
    schedule_id: str
    acknowledgement: Acknowledgement
    calls: Sequence[Call]
    rows: Sequence[asyncpg.Record]
    replaced_at: datetime | None  # acceptance of the new version

    def faults(self) -> Iterator[str]:
        for fault in (
            *self._late_starts(),
            *self._repeated(),
            *self._ledger_faults(),
            *self._missing(),
        ):
            yield f"{self.race}: {fault}; {self.acknowledgement}"

    def _late_starts(self) -> Iterator[str]:
        """Yield each start of the old version after the response to the change."""
        for call in self.calls:
            late = call.started_at - self.acknowledgement.at
            if not is_old_version(call) or late <= timedelta(0):
                continue
            if call.run_id not in self.acknowledgement.in_flight:
                yield f"{call.run_id} of the old version started {late} after"
            if late > GRACE:
                yield f"{call.run_id} started {late} after"
        for row in self.rows:
            name = name_of(row)
            is_old = row["version"] == 1 and row["attempt"] > 0
            if (
                is_old
                and name not in self.acknowledgement.in_flight
                and row["finished_at"] > self.acknowledgement.at
            ):
                yield f"{name} was claimed and had not ended, but the response omits the run"
        yield from (
            f"the response names {name}, which does not exist"
            for name in self.acknowledgement.in_flight - set(map(name_of, self.rows))
        )

    def _repeated(self) -> Iterator[str]:
        for name, times in Counter(call.run_id for call in self.calls).items():
            if times > 1:
                yield f"{name} ran {times} times"

    def _ledger_faults(self) -> Iterator[str]:
        """Yield each difference between the ledger and the target, with the versions."""
        attempted = {name_of(row): row for row in self.rows if row["attempt"]}
        stopped = {name for name, row in attempted.items() if self._was_stopped(row)}
        recorded = {name: row["version"] for name, row in attempted.items() if name not in stopped}
        called = {call.run_id: 1 if is_old_version(call) else 2 for call in self.calls}
        if recorded != {name: version for name, version in called.items() if name not in stopped}:
            yield f"the ledger has {recorded}, the target {called}"
        withdrawn = ("cancelled", STOPPED_STATES.get(self.race.change, "superseded"))
        for row in self.rows:
            ended, due = (row["state"], row["reason"]), ("succeeded", None)
            if ended != (due if name_of(row) in recorded else withdrawn):
                yield f"{name_of(row)} ended {ended} after {row['attempt']} attempts"

    def _was_stopped(self, row: asyncpg.Record) -> bool:
        """Return whether the cancel stopped a claimed run, perhaps before its call."""
        is_named = name_of(row) in self.acknowledgement.in_flight
        return self.race.change is Change.CANCEL and is_named and row["state"] == "cancelled"

    def _missing(self) -> Iterator[str]:
        """Yield the required times without a call: of the new version and overdue old ones."""
        at, called = self.replaced_at, {call.scheduled_for for call in self.calls}
        if at is None:
            return
        expected = {*(t for t in self.race.old if t <= at), *(t for t in self.race.new if t >= at)}
        if self.race.change is Change.RETARGET or not self.race.is_recurring:
            expected |= set(self.race.new)
        if missing := expected - called:
            yield f"accepted at {at}, {sorted(map(str, missing))} never ran"
        if not called <= {*self.race.old, *self.race.new}:
            yield "a run outside both versions was called"

    @property
    def winner(self) -> str:
        """Return which side won the race for the run at the due time."""
        name = run_id(self.schedule_id, self.race.due_at)
        ran = next((call for call in self.calls if call.run_id == name), None)
        if name in self.acknowledgement.in_flight:
            return "in flight, ran" if ran else "in flight, stopped"
        if ran is None:
            return "unstaged"
        return "ran before" if is_old_version(ran) else "ran as new"


def is_old_version(call: Call) -> bool:
    return "old" in call.body


def name_of(row: asyncpg.Record) -> str:
    return run_id(str(row["schedule_id"]), row["scheduled_for"])


async def change(race: Race, tenant: Tenant, target: Target) -> Acknowledgement:
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
    except CommandRejected as rejected:
        return Acknowledgement(now(), frozenset(), rejected.code)
    return Acknowledgement(now(), frozenset(response.in_flight))


async def run_all(races: Sequence[Race], tenant: Tenant, target: Target) -> list[FinishedRace]:
    ids: list[str] = []
    for first in range(0, len(races), BATCH_SIZE):
        bodies = [race.body("old", target) for race in races[first : first + BATCH_SIZE]]
        ids += [
            str(response.id) for response in await tenant.harebell.put_many(bodies) if response.ok
        ]
    assert now() < races[0].changed_at - SECOND, "The machine is too slow for the races."
    acknowledgements = await asyncio.gather(*(change(race, tenant, target) for race in races))

    async def have_all_ended() -> bool:
        return all(row["finished_at"] is not None for row in await tenant.runs())

    last = max([*(t for race in races for t in race.new), *(each.at for each in acknowledgements)])
    await asyncio.sleep((last + GRACE + SECOND - now()).total_seconds())
    await until(have_all_ended, what="the end of all runs")
    return await collect_results(races, ids, acknowledgements, tenant, target)


async def collect_results(
    races: Sequence[Race],
    ids: Sequence[str],
    acknowledgements: Sequence[Acknowledgement],
    tenant: Tenant,
    target: Target,
) -> list[FinishedRace]:
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
        FinishedRace(
            race=race,
            schedule_id=id_,
            acknowledgement=each,
            calls=calls[id_],
            rows=rows[id_],
            replaced_at=replaced.get(id_),
        )
        for race, id_, each in zip(races, ids, acknowledgements, strict=True)
    ]


@pytest.mark.long
@pytest.mark.requirement("S10", "ASK-4")
async def test_run_belongs_to_one_version_when_changed_around_its_due_time(
    tenant: Tenant, target: Target
) -> None:
    first = time_in(FIRST_DUE)
    races = [Race(number, first + number // RACES_PER_TIME * SPACING) for number in range(RACES)]

    finished_races = await run_all(races, tenant, target)

    winners = Counter((finished.race.change, finished.winner) for finished in finished_races)
    log.info("winners: %s", {" ".join(each): count for each, count in sorted(winners.items())})
    assert [fault for finished in finished_races for fault in finished.faults()] == []
    for finished in finished_races:
        rejected = finished.acknowledgement.rejected
        # a pause and a put reject a schedule that has completed by then
        assert rejected in (None, REJECTIONS.get(finished.race.change))
        assert rejected is None or finished.winner == "ran before"
    kinds = {finished.winner for finished in finished_races}
    assert {"unstaged", "in flight, ran", "ran before", "ran as new"} <= kinds, "No race occurred."
