"""The desk of dead letters, as another service sees it."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from harebell.client.base import ClientBase, View, parse_response
from harebell.client.requests import DeadLetterListFields, ReplayJobOptions
from harebell.contract.commands import MAX_DEAD_LETTER_IDS
from harebell.contract.responses import DeadLetterResponse, ReplayJobResponse


class DeadLetterMethods(ClientBase):
    """List what was given up, in groups of the same failure; run it again, or drop it."""

    async def dead_letter(self, id: UUID | str) -> View:  # noqa: A002  # the field's name
        """One, with its whole story."""
        return await self._view("dlq.get", {"id": id})

    def dead_letters(
        self, *, limit: int | None = None, **only: Unpack[DeadLetterListFields]
    ) -> AsyncIterator[View]:
        """Newest first."""
        return self._rows("dlq.list", only, limit)

    def failure_groups(
        self, *, state: str = "open", limit: int | None = None
    ) -> AsyncIterator[View]:
        """The latest failure first; `state` open (with open letters), muted, archived or all."""
        return self._rows("dlq.group.list", {"state": state}, limit)

    async def replay(
        self, ids: Iterable[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Run each again, as a new series of the same run; the answer has what became of each."""
        return await self._in_portions("dlq.replay", list(ids), note)

    async def discard(
        self, ids: Iterable[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Take each off the desk; the record stays."""
        return await self._in_portions("dlq.discard", list(ids), note)

    async def edit(
        self, letter: UUID | str, target: Mapping[str, Any], *, note: str | None = None
    ) -> DeadLetterResponse:
        """A copy takes its place, whose replay calls this; the answer names the copy."""
        fields = {"id": letter, "target": target, "note": note}
        return parse_response(DeadLetterResponse, await self._command("dlq.edit", fields))

    async def import_dead_letters(
        self, letters: Sequence[Mapping[str, Any]], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Keep what `dead_letter` told, here or elsewhere; at most 96 KiB at a time."""
        fields = {"dead_letters": letters, "note": note}
        return parse_response(DeadLetterResponse, await self._command("dlq.import", fields))

    async def start_replay_job(
        self,
        *,
        ids: Sequence[UUID | str] | None = None,
        select: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        **how: Unpack[ReplayJobOptions],
    ) -> ReplayJobResponse:
        """Little by little, of those that are open now: `ids`, or all that `select` matches.

        It goes on when the caller is gone: `replay_job` tells how far it is.
        """
        fields = {"ids": ids, "select": select, "request_id": request_id, **how}
        return parse_response(
            ReplayJobResponse, await self._command("dlq.replay_job.start", fields)
        )

    async def pause_replay_job(
        self, job: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        return await self._to_job("dlq.replay_job.pause", job, note)

    async def resume_replay_job(
        self, job: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        return await self._to_job("dlq.replay_job.resume", job, note)

    async def abort_replay_job(
        self, job: UUID | str, *, note: str | None = None
    ) -> ReplayJobResponse:
        """For good; what has not been replayed stays open."""
        return await self._to_job("dlq.replay_job.abort", job, note)

    async def replay_job(self, job: UUID | str) -> View:
        """How far it is, and what came of it."""
        return await self._view("dlq.replay_job.get", {"id": job})

    def replay_jobs(self, *, limit: int | None = None) -> AsyncIterator[View]:
        """Newest first."""
        return self._rows("dlq.replay_job.list", {}, limit)

    def replay_job_items(self, job: UUID | str, *, limit: int | None = None) -> AsyncIterator[View]:
        """Its letters in their order, each with what became of it."""
        return self._rows("dlq.replay_job.items", {"job": job}, limit)

    async def note_groups(self, groups: Sequence[UUID | str], note: str) -> DeadLetterResponse:
        """In place of the note before."""
        return await self._to_groups("dlq.group.note", groups, note=note)

    async def mute_groups(
        self, groups: Sequence[UUID | str], until: datetime | str, *, note: str | None = None
    ) -> DeadLetterResponse:
        """Until then their letters ask for nobody."""
        return await self._to_groups("dlq.group.mute", groups, until=until, note=note)

    async def archive_groups(
        self, groups: Sequence[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Put away until they fail again."""
        return await self._to_groups("dlq.group.archive", groups, note=note)

    async def reopen_groups(
        self, groups: Sequence[UUID | str], *, note: str | None = None
    ) -> DeadLetterResponse:
        """Neither muted nor archived any more."""
        return await self._to_groups("dlq.group.reopen", groups, note=note)

    async def _to_job(self, verb: str, job: UUID | str, note: str | None) -> ReplayJobResponse:
        return parse_response(
            ReplayJobResponse, await self._command(verb, {"job": job, "note": note})
        )

    async def _to_groups(
        self, verb: str, groups: Sequence[UUID | str], **fields: object
    ) -> DeadLetterResponse:
        return parse_response(
            DeadLetterResponse, await self._command(verb, {"groups": groups, **fields})
        )

    async def _in_portions(
        self, verb: str, ids: list[UUID | str], note: str | None
    ) -> DeadLetterResponse:
        results: dict[str, str] = {}
        for start in range(0, len(ids), MAX_DEAD_LETTER_IDS):
            portion = {"ids": ids[start : start + MAX_DEAD_LETTER_IDS], "note": note}
            results |= parse_response(
                DeadLetterResponse, await self._command(verb, portion)
            ).results
        return DeadLetterResponse(results=results)
