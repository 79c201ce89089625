"""The retention: one ticker removes what has reached its age, and archives the runs before."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeVar

import asyncpg
import structlog

from harebell.contract.errors import DatabaseUnavailable, Transient
from harebell.domain.tenant_policy import PolicySource
from harebell.runtime.archive import (
    KINDS,
    ArchiveFault,
    ArchiveFile,
    ArchivePart,
    PartWriter,
    file_name,
    record_part,
    remove_temporary_files,
)
from harebell.runtime.failpoint import reach
from harebell.runtime.settings import TickerSettings
from harebell.storage.engine import translate_db_errors
from harebell.storage.migrate import DAYS_BACK
from harebell.ticker import metrics
from harebell.ticker.model.retention import (
    ONE_DAY,
    Ages,
    Cutoffs,
    DayStep,
    days_until,
    plan_day,
    start_of,
)
from harebell.ticker.store import expired_rows
from harebell.ticker.store import retention as store
from harebell.ticker.store.expired_rows import Slice

Result = TypeVar("Result")

TASK: Final = "retention"
ARCHIVE: Final = "archive"  # the name of the record that the removed runs go to an archive
ARCHIVE_MEMORY: Final = timedelta(days=7)  # after the last pass of a ticker with an archive
HOLDER_BYTES: Final = 8  # of the name of one ticker, because instances may have equal names
INTERVAL: Final = timedelta(hours=1)  # between two passes of all tickers
POLL_INTERVAL: Final = 15.0  # seconds; after a failure or a kill, a ticker continues after this
FIRST_DELAY: Final = 10.0  # seconds after the start
LEASE: Final = timedelta(seconds=30)  # of one ticker
REMOVED_KINDS: Final = (
    "run",
    "attempt",
    "version",
    "schedule",
    "bulk_operation",
    "command_result",
)
BATCH: Final = 2_000  # rows of one statement
SLICE: Final = 500  # schedules that one transaction examines
BATCH_PAUSE: Final = 0.02  # seconds, in which the other statements have the disk and the locks
MAX_BATCHES: Final = 100_000  # of one kind of row in a pass
MAX_PAST_DAYS: Final = 1_000  # days before the first partition in one pass
MAX_DETACH_TRIES: Final = 60  # of one day in a pass
DETACH_PAUSE: Final = 1.0  # seconds between two tries
EXAMINED_PERIOD: Final = timedelta(hours=1)  # of one statement that examines a day

log = structlog.get_logger()


class PartFault(Transient):
    """A part of the removed rows that the database does not drop, which stays until it can."""

    code = "part_fault"


class LeaseLost(Transient):
    """Another ticker has taken over the retention."""

    code = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriods:
    """The ages of all kinds of rows at one time."""

    runs: Ages
    versions: Ages
    ended_schedules: Ages
    bulk_operations: Ages
    command_results: Ages


@dataclass(slots=True, kw_only=True)
class Retention:
    """The passes of one ticker. `archive_dir` is None if the removed runs are not archived."""

    pool: asyncpg.Pool
    settings: TickerSettings
    policies: PolicySource
    batch: int = BATCH
    _holder: str = field(default_factory=lambda: token_hex(HOLDER_BYTES))
    _faults: dict[str, str] = field(default_factory=dict)  # of this pass, by part

    @property
    def periods(self) -> RetentionPeriods:
        """Return the ages by the settings and the tenant policies in force."""
        settings, policies = self.settings, self.policies.current
        return RetentionPeriods(
            runs=Ages.of("runs", settings.run_retention, policies),
            versions=Ages.of("versions", settings.version_retention, policies),
            ended_schedules=Ages.of("ended_schedules", settings.ended_schedule_retention, policies),
            bulk_operations=Ages.of("bulk_operations", settings.bulk_operation_retention, policies),
            command_results=Ages.of("command_results", settings.command_result_retention, policies),
        )

    async def run(self) -> None:
        """Run a pass at each interval until the task is cancelled.

        A failure is repeated after `POLL_INTERVAL`, and readiness does not depend on it.
        """
        for kind in REMOVED_KINDS:
            metrics.count_removed(kind, 0)  # a rate ignores the first value of a series
        await asyncio.sleep(FIRST_DELAY)
        while True:
            try:
                await self.run_pass(every=INTERVAL)
            except Transient as error:
                log.warning("retention failed", error=error.code, reason=error.reason)
            await asyncio.sleep(POLL_INTERVAL)

    async def run_pass(self, *, every: timedelta = timedelta()) -> bool:
        """Remove what has reached its age.

        Return False if another ticker has the lease, or if the last success is less than `every`
        ago. A later pass of any ticker continues a pass that a crash has ended.
        Raise `Transient` if PostgreSQL or the archive is not available.
        """
        with translate_db_errors():
            await self._report()
            await self._check_archive()
            if not await store.take_lease(self.pool, TASK, self._holder, length=LEASE, every=every):
                return False
            has_succeeded = False
            self._faults.clear()
            keeping = asyncio.create_task(self._keep_lease())
            try:
                await self._remove_all()
                if self._faults:
                    raise PartFault(" ".join(self._faults.values()))
                has_succeeded = True
            finally:
                keeping.cancel()
                await store.end_lease(self.pool, TASK, self._holder, has_succeeded=has_succeeded)
            await self._report()
        return True

    async def _check_archive(self) -> None:
        """Record that this ticker archives, or raise `ArchiveFault` if another one does."""
        if self.settings.archive_dir is not None:
            await store.mark_archive(self.pool, ARCHIVE, self._holder, length=ARCHIVE_MEMORY)
        elif await store.is_archived(self.pool, ARCHIVE):
            raise ArchiveFault(
                "Other tickers archive the removed runs, but this ticker has no "
                "HAREBELL_ARCHIVE_DIR, so it removes nothing."
            )

    async def _remove_all(self) -> None:
        now, periods = await store.database_now(self.pool), self.periods
        cutoffs = periods.runs.cutoffs(now)
        await self._finish_parts()
        await store.mark_history(self.pool, periods.runs, cutoffs)
        days, past_days = await store.list_days(self.pool, limit=MAX_PAST_DAYS)
        for first in [*past_days, *days][:1]:
            await self._count_ended(since=start_of(first), until=cutoffs.last)
        await store.forget_examinations(self.pool, [*past_days, *days])
        for day in days_until(cutoffs.last, past_days):
            await self._remove_day(day, cutoffs, now=now)
        for day in days_until(cutoffs.last, days):
            is_first = day == days[0] and now.date() - day > timedelta(days=DAYS_BACK)
            if await self._remove_day(day, cutoffs, now=now, has_partition=True, is_first=is_first):
                days = days[1:]
        await self._remove_rows(periods, cutoffs)

    async def _remove_day(
        self,
        day: date,
        cutoffs: Cutoffs,
        *,
        now: datetime,
        has_partition: bool = False,
        is_first: bool = False,
    ) -> bool:
        """Remove the runs of a day. Return whether its partition no longer exists.

        An empty partition stays until it is the first one, because a partition of earlier times
        takes its place.
        """
        await self._renew_lease()
        step = plan_day(day, cutoffs, await store.examination(self.pool, day), now=now)
        if step is DayStep.KEEP:
            return False
        has_runs = await store.has_runs(self.pool, day)
        is_whole = step is DayStep.REMOVE_PARTITION and has_partition
        if is_whole and (is_first or has_runs):
            is_removed = not (has_runs and await self._has_kept_run(day, cutoffs))
            if is_removed and await self._remove_partition(day, has_runs=has_runs):
                return is_first
        if has_runs:
            held = await self._remove_runs(day, cutoffs)
            if await store.has_runs(self.pool, day):
                await store.record_examination(
                    self.pool, day, cutoffs.scope(day), is_final=held == 0
                )
        return False

    async def _remove_partition(self, day: date, *, has_runs: bool) -> bool:
        """Detach and remove a partition. Return False if a run of the day must stay."""
        needs_archive = self.settings.archive_dir is not None and has_runs
        for _ in range(MAX_DETACH_TRIES):
            await reach("ticker.retention.before_detach")
            try:
                number = await store.retire_day(self.pool, day, needs_archive=needs_archive)
                break
            except asyncpg.LockNotAvailableError:
                metrics.RETENTION_LOCK_RETRIES.inc()
                await self._renew_lease()
                await asyncio.sleep(DETACH_PAUSE)
        else:
            raise DatabaseUnavailable(f"The partition of {day} is in use.")
        await reach("ticker.retention.after_detach")
        if number is None:
            return False
        await self._finish_parts()
        log.info("day of runs removed", day=day.isoformat(), archived=needs_archive)
        return True

    async def _has_kept_run(self, day: date, cutoffs: Cutoffs) -> bool:
        start = start_of(day)
        periods = ONE_DAY // EXAMINED_PERIOD
        for since, until in pairwise(start + k * EXAMINED_PERIOD for k in range(periods + 1)):
            if await store.has_kept_run(self.pool, day, cutoffs, since=since, until=until):
                return True
            await self._renew_lease()
            await asyncio.sleep(BATCH_PAUSE)
        return False

    async def _remove_runs(self, day: date, cutoffs: Cutoffs) -> int:
        """Remove the runs of a day in batches. Return the number of runs that other rules hold."""
        part = None
        after, held = (start_of(day) - ONE_DAY, store.FIRST_ID), 0
        for _ in range(MAX_BATCHES):
            await self._renew_lease()
            if part is None and self.settings.archive_dir is not None:
                part = await store.open_part(self.pool, day)
            async with store.long_transaction(self.pool) as connection:
                removal = await store.remove_runs(
                    connection, day, cutoffs, after=after, limit=self.batch, part=part
                )
            await reach("ticker.retention.after_batch")
            held += removal.held
            if part is None:
                metrics.count_removed("run", removal.runs)
                metrics.count_removed("attempt", removal.attempts)
            if removal.last is None:
                break
            after = removal.last
            await asyncio.sleep(BATCH_PAUSE)
        await self._finish_parts()
        return held

    async def _finish_parts(self) -> None:
        """Archive the removed rows that are not in the archive, and drop their tables.

        A part that the database does not drop stays, and the pass continues and then fails.
        """
        for part in await store.list_parts(self.pool):
            if part.name in self._faults:
                continue
            try:
                await self._finish_part(part)
            except (asyncpg.RaiseError, asyncpg.UndefinedTableError) as error:
                self._faults[part.name] = f"The part {part.name} stays: {error}."
                log.exception("part not removed", part=part.name)

    async def _finish_part(self, part: store.Part) -> None:
        if part.needs_archive and not part.is_archived:
            directory = self.settings.archive_dir
            if directory is None:
                reason = (
                    f"The runs of {part.day} wait for the archive, but this ticker has no "
                    "HAREBELL_ARCHIVE_DIR."
                )
                raise ArchiveFault(reason)
            await self._archive(part, directory)
            await reach("ticker.retention.after_record")
        runs, attempts = await store.count_rows(self.pool, part)
        await store.drop_part(self.pool, part)
        await reach("ticker.retention.after_drop")
        metrics.REMOVED_PARTS.inc()
        metrics.count_removed("run", runs)
        metrics.count_removed("attempt", attempts)

    async def _archive(self, part: store.Part, root: Path) -> None:
        """Write the files of a part and its manifest, then record the part in the ledger.

        A repeat after a crash writes the same rows to the same names.
        """
        directory = root / part.day.isoformat()
        try:
            if not any(await store.count_rows(self.pool, part)):
                await store.record_archive(self.pool, part, runs=0, attempts=0, size=0)
                return
            remove_temporary_files(root, part.day)
            files = {kind: await self._write_file(part, kind, directory) for kind in KINDS}
            archived = ArchivePart(part.number, files)
            await reach("ticker.retention.after_files")
            await asyncio.to_thread(record_part, root, part.day, archived, owner=self._holder)
        except OSError as error:
            reason = f"The archive of {part.day} is not writable: {error.strerror}."
            raise ArchiveFault(reason) from error
        await reach("ticker.retention.after_manifest")
        runs, attempts = files["runs"].count, files["attempts"].count
        await store.record_archive(
            self.pool, part, runs=runs, attempts=attempts, size=archived.size
        )
        metrics.ARCHIVED_RUNS.inc(runs)
        metrics.ARCHIVED_BYTES.inc(archived.size)
        metrics.ARCHIVED_PARTS.inc()

    async def _write_file(self, part: store.Part, kind: str, directory: Path) -> ArchiveFile:
        writer = PartWriter(
            directory=directory, name=file_name(kind, part.number), owner=self._holder
        )
        try:
            await asyncio.to_thread(writer.open)
            async for lines in store.read_lines(self.pool, part, kind, limit=self.batch):
                await asyncio.to_thread(writer.write, lines)
                await reach("ticker.retention.after_lines")
                await self._renew_lease()
                await asyncio.sleep(BATCH_PAUSE)
            return await asyncio.to_thread(writer.close)
        finally:
            writer.discard()

    async def _count_ended(self, *, since: datetime, until: datetime) -> None:
        """Count the ended runs before `until` in their schedules, before their rows are removed."""

        async def count(connection: asyncpg.Connection, schedules: Slice) -> None:
            await expired_rows.count_ended_runs(connection, schedules, since=since, until=until)

        async for schedules in self._slices():
            await self._examine(schedules, count)

    async def _remove_rows(self, periods: RetentionPeriods, cutoffs: Cutoffs) -> None:
        await self._in_batches(
            "command_result",
            lambda connection: expired_rows.delete_by_age(
                connection, "command_results", periods.command_results, limit=self.batch
            ),
        )
        await self._in_batches(
            "bulk_operation",
            lambda connection: expired_rows.delete_by_age(
                connection, "bulk_operations", periods.bulk_operations, limit=self.batch
            ),
        )
        cutoff = expired_rows.Cutoff(runs=periods.runs, runs_before=cutoffs.last)

        async def delete_versions(connection: asyncpg.Connection, schedules: Slice) -> int:
            return await expired_rows.delete_versions(
                connection, schedules, periods.versions, cutoff=cutoff, limit=self.batch
            )

        async def delete_ended(connection: asyncpg.Connection, schedules: Slice) -> int:
            return await expired_rows.delete_ended_schedules(
                connection, schedules, periods.ended_schedules, cutoff=cutoff
            )

        async for schedules in self._slices():
            for _ in range(MAX_BATCHES):
                count = await self._examine(schedules, delete_versions)
                metrics.count_removed("version", count)
                if count < self.batch:
                    break
                await self._renew_lease()
                await asyncio.sleep(BATCH_PAUSE)
            metrics.count_removed("schedule", await self._examine(schedules, delete_ended))

    async def _slices(self) -> AsyncIterator[Slice]:
        """Yield all schedules in slices, and renew the lease before each one."""
        after = store.FIRST_ID
        for _ in range(MAX_BATCHES):
            await self._renew_lease()
            found = await expired_rows.find_slice(self.pool, after, min(SLICE, self.batch))
            if found is None:
                return
            yield found
            after = found.last
            await asyncio.sleep(BATCH_PAUSE)

    async def _examine(
        self,
        schedules: Slice,
        examine: Callable[[asyncpg.Connection, Slice], Awaitable[Result]],
    ) -> Result:
        async with store.slice_transaction(self.pool) as connection:
            result = await examine(connection, schedules)
        await reach("ticker.retention.after_rows")
        return result

    async def _in_batches(
        self, kind: str, remove: Callable[[asyncpg.Connection], Awaitable[int]]
    ) -> None:
        for _ in range(MAX_BATCHES):
            async with store.long_transaction(self.pool) as connection:
                count = await remove(connection)
            metrics.count_removed(kind, count)
            await reach("ticker.retention.after_rows")
            if count < self.batch:
                return
            await self._renew_lease()
            await asyncio.sleep(BATCH_PAUSE)

    async def _keep_lease(self) -> None:
        """Renew the lease during long statements. A step of the pass notices a lost lease."""
        while True:
            await asyncio.sleep(LEASE / 3 / timedelta(seconds=1))
            with suppress(Transient), translate_db_errors():
                await store.renew_lease(self.pool, TASK, self._holder, length=LEASE)

    async def _renew_lease(self) -> None:
        if not await store.renew_lease(self.pool, TASK, self._holder, length=LEASE):
            raise LeaseLost("Another ticker may have taken over the retention.")

    async def _report(self) -> None:
        finished_at, oldest = await store.report(self.pool, TASK)
        if finished_at is not None:
            metrics.LAST_RETENTION_PASS.set(finished_at.timestamp())
        if oldest is not None:
            metrics.OLDEST_RUN_DAY.set(start_of(oldest).timestamp())
