"""The client methods for dead letters, failure groups and replay jobs."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from harebell.client.base import ClientBase
from harebell.client.requests import DeadLetterListFields, ReplayJobOptions
from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.commands import MAX_DEAD_LETTER_IDS
from harebell.contract.responses import DeadLetterResponse, ReplayJobResponse
from harebell.contract.views import (
    DeadLetterDetail,
    DeadLetterView,
    FailureGroupView,
    ParkedView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
)


class DeadLetterMethods(ClientBase):
    """The methods for dead letters, failure groups and replay jobs."""

    async def dead_letter(self, id: UUID | str) -> DeadLetterDetail:  # noqa: A002  # the name of the field
        """Return one dead letter with its payload and its replays."""
        dead_letter: DeadLetterDetail = await self._query("dlq.get", {"id": id})
        return dead_letter

    def dead_letters(
        self, *, limit: int | None = None, **fields: Unpack[DeadLetterListFields]
    ) -> AsyncIterator[DeadLetterView]:
        """Yield dead letters, the newest first, all of them or the first `limit`."""
        return self._rows("dlq.list", fields, limit)

    def failure_groups(
        self, *, state: str = "open", limit: int | None = None
    ) -> AsyncIterator[FailureGroupView]:
        """Yield failure groups, the latest failure first.

        `state` is open (with open dead letters), muted, archived or all.
        """
        return self._rows("dlq.group.list", {"state": state}, limit)

    async def parked_dead_letters(self, *, limit: int = 20) -> ParkedView:
        """Return the number of dead letters that cannot be stored, and the oldest of them.

        The query needs the login of an operator.
        """
        view: ParkedView = await self._query(
            "dlq.parked", {"limit": limit}, tenant=OPERATIONS_TENANT
        )
        return view

    async def replay(
        self, ids: Iterable[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Execute dead runs again, each with a new replay number. Return each result by id."""
        return await self._send_batches("dlq.replay", list(ids), note)

    async def discard(
        self, ids: Iterable[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Close dead letters without a replay. Their records remain until the retention ends."""
        return await self._send_batches("dlq.discard", list(ids), note)

    async def edit(
        self, dead_letter: UUID | str, target: Mapping[str, Any], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Replace a dead letter by a copy with another target. The response has the copy's id."""
        fields = {"id": dead_letter, "target": target, "note": note}
        return await self._command(DeadLetterResponse, "dlq.edit", fields)

    async def import_dead_letters(
        self, dead_letters: Sequence[Mapping[str, Any]], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Store dead letters that `dead_letter` returned, at most 96 KiB in one call."""
        fields = {"dead_letters": dead_letters, "note": note}
        return await self._command(DeadLetterResponse, "dlq.import", fields)

    async def start_replay_job(
        self,
        *,
        ids: Sequence[UUID | str] | None = None,
        select: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        **options: Unpack[ReplayJobOptions],
    ) -> ReplayJobResponse:
        """Replay the dead letters that are open now: those of `ids`, or all that match `select`.

        The job continues after the client disconnects. `replay_job` returns its progress.
        """
        fields = {"ids": ids, "select": select, "request_id": request_id, **options}
        return await self._command(ReplayJobResponse, "dlq.replay_job.start", fields)

    async def pause_replay_job(
        self, job_id: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        """Pause a replay job."""
        return await self._change_replay_job("dlq.replay_job.pause", job_id, note)

    async def resume_replay_job(
        self, job_id: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        """Continue a paused replay job."""
        return await self._change_replay_job("dlq.replay_job.resume", job_id, note)

    async def abort_replay_job(
        self, job_id: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        """Abort a replay job permanently. Dead letters that it has not replayed remain open."""
        return await self._change_replay_job("dlq.replay_job.abort", job_id, note)

    async def replay_job(self, job_id: UUID | str) -> ReplayJobDetail:
        """Return one replay job with its progress."""
        job: ReplayJobDetail = await self._query("dlq.replay_job.get", {"id": job_id})
        return job

    def replay_jobs(self, *, limit: int | None = None) -> AsyncIterator[ReplayJobView]:
        """Yield replay jobs, the newest first."""
        return self._rows("dlq.replay_job.list", {}, limit)

    def replay_job_items(
        self, job_id: UUID | str, *, limit: int | None = None
    ) -> AsyncIterator[ReplayItemView]:
        """Yield the dead letters of a replay job in its order, with their results."""
        return self._rows("dlq.replay_job.items", {"id": job_id}, limit)

    async def note_groups(self, groups: Sequence[UUID | str], note: str) -> DeadLetterResponse:
        """Replace the note of failure groups."""
        return await self._change_groups("dlq.group.note", groups, note=note)

    async def mute_groups(
        self, groups: Sequence[UUID | str], until: datetime | str, *, note: str | None = None
    ) -> DeadLetterResponse:
        """Hide failure groups from the open groups until a time."""
        return await self._change_groups("dlq.group.mute", groups, until=until, note=note)

    async def archive_groups(
        self, groups: Sequence[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Hide failure groups until their next failure."""
        return await self._change_groups("dlq.group.archive", groups, note=note)

    async def reopen_groups(
        self, groups: Sequence[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Open failure groups that are muted or archived."""
        return await self._change_groups("dlq.group.reopen", groups, note=note)

    async def _change_replay_job(
        self, verb: str, job_id: UUID | str, note: str | None
    ) -> ReplayJobResponse:
        return await self._command(ReplayJobResponse, verb, {"id": job_id, "note": note})

    async def _change_groups(
        self, verb: str, groups: Sequence[UUID | str], **fields: object
    ) -> DeadLetterResponse:
        return await self._command(DeadLetterResponse, verb, {"groups": groups, **fields})

    async def _send_batches(
        self, verb: str, ids: list[UUID | str], note: str | None
    ) -> DeadLetterResponse:
        results: dict[str, str] = {}
        for start in range(0, len(ids), MAX_DEAD_LETTER_IDS):
            fields = {"ids": ids[start : start + MAX_DEAD_LETTER_IDS], "note": note}
            results |= (await self._command(DeadLetterResponse, verb, fields)).results
        return DeadLetterResponse(results=results)
