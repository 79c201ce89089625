"""Harebell, as another service sees it: put schedules, steer them, ask what became of them.

Every call is one question with one answer, in time or with a typed error: `Refused` (Harebell says
no), `Malformed` (not sent), `Unroutable` (no Harebell there), `NotAllowed`, `BrokerUnavailable` or
`AnswerTimeout` (the outcome is unknown; asking again with the same `request_id` is safe).
"""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Self, Unpack

from harebell.client.base import DEFAULT_TENANT, View, parse_response, parse_responses
from harebell.client.breakers import BreakerMethods
from harebell.client.connection import Connection, parse_amqp_urls
from harebell.client.dead_letters import DeadLetterMethods
from harebell.client.requests import (
    CommandOptions,
    RunListFields,
    Schedule,
    ScheduleListFields,
    ScheduleRef,
    check_size,
    schedule_bytes,
)
from harebell.client.rpc import RpcChannel
from harebell.contract import __version__
from harebell.contract.amqp_names import COMMANDS
from harebell.contract.commands import Resolution
from harebell.contract.policy import Overlap
from harebell.contract.responses import BulkResponse, ErrorResponse, RunResponse, ScheduleResponse

DEFAULT_TIMEOUT: Final = 10.0  # seconds, from the call to its answer


class Client(DeadLetterMethods, BreakerMethods):
    """A client of one tenant. Safe to use from many tasks at once."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        tenant: str = DEFAULT_TENANT,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # of every call, not of connecting
        name: str = "harebell-client",
    ) -> AsyncIterator[Self]:
        """Raises `BrokerUnavailable`, and `Malformed` for what is no URL.

        Several URLs with commas between them are nodes of one cluster: one that lives is found.
        The login in them is the actor that Harebell records.
        """
        login = parse_amqp_urls(url)[0].user
        host = socket.gethostname()
        properties = {"service": name, "version": __version__, "host": host}
        link = Connection(url, name=f"{name}@{host}", properties=properties)
        await link.open()
        try:
            yield cls(RpcChannel(link, timeout=timeout, login=login), tenant=tenant)
        finally:
            await link.close()

    async def put(self, schedule: Schedule) -> ScheduleResponse:
        """Create or replace a schedule; the answer says that it is stored and when it runs."""
        body = check_size(schedule_bytes(schedule))
        return parse_response(ScheduleResponse, await self._ask(COMMANDS, "schedule.put", body))

    async def put_many(
        self, schedules: Sequence[Schedule]
    ) -> list[ScheduleResponse | ErrorResponse]:
        """Up to 500 in one message, applied in order; a refused one does not stop the others."""
        if not schedules:
            return []
        body = check_size(b"[" + b",".join(map(schedule_bytes, schedules)) + b"]")
        answer = await self._ask(COMMANDS, "schedule.put", body)
        return parse_responses(ScheduleResponse, answer, expected=len(schedules))

    async def patch(
        self,
        set: Mapping[str, Any],  # noqa: A002  # the field's name
        *,
        expected_version: int | None = None,
        effective_at: datetime | str | None = None,
        **order: Unpack[CommandOptions],
    ) -> ScheduleResponse:
        """Change some fields; null takes one back to its default (a JSON merge patch)."""
        fields = {**order, "set": set}
        given = {"expected_version": expected_version, "effective_at": effective_at}
        return parse_response(
            ScheduleResponse, await self._command("schedule.patch", {**fields, **given})
        )

    async def pause(
        self, *, until: datetime | str | None = None, **order: Unpack[CommandOptions]
    ) -> ScheduleResponse:
        """Until it is resumed, or until then."""
        return parse_response(
            ScheduleResponse, await self._command("schedule.pause", {**order, "until": until})
        )

    async def resume(self, **order: Unpack[CommandOptions]) -> ScheduleResponse:
        return parse_response(ScheduleResponse, await self._command("schedule.resume", order))

    async def cancel(self, **order: Unpack[CommandOptions]) -> ScheduleResponse:
        return parse_response(ScheduleResponse, await self._command("schedule.cancel", order))

    async def pause_all(
        self,
        select: Mapping[str, str],
        *,
        request_id: str,
        until: datetime | str | None = None,
        note: str | None = None,
    ) -> BulkResponse:
        """All that match `tag`, `owner`, `name`, `state`; the receipt is the `request_id`."""
        fields = {"select": select, "request_id": request_id, "until": until, "note": note}
        return parse_response(BulkResponse, await self._command("schedule.pause", fields))

    async def resume_all(
        self,
        select: Mapping[str, str] | None = None,
        *,
        request_id: str,
        bulk_operation_id: str | None = None,
        note: str | None = None,
    ) -> BulkResponse:
        """Those that match, or exactly those that a receipt names."""
        fields = {
            "select": select,
            "bulk_operation_id": bulk_operation_id,
            "request_id": request_id,
            "note": note,
        }
        return parse_response(BulkResponse, await self._command("schedule.resume", fields))

    async def cancel_all(
        self, select: Mapping[str, str], *, request_id: str, note: str | None = None
    ) -> BulkResponse:
        fields = {"select": select, "request_id": request_id, "note": note}
        return parse_response(BulkResponse, await self._command("schedule.cancel", fields))

    async def trigger(
        self, *, overlap: Overlap | str | None = None, **order: Unpack[CommandOptions]
    ) -> ScheduleResponse:
        """One run now, beside the timetable; `run_id` of the answer names it."""
        fields = {**order, "overlap": overlap}
        return parse_response(ScheduleResponse, await self._command("schedule.trigger", fields))

    async def skip(self, at: datetime | str, **order: Unpack[CommandOptions]) -> ScheduleResponse:
        """Take one instant out."""
        return parse_response(
            ScheduleResponse, await self._command("schedule.skip", {**order, "at": at})
        )

    async def backfill(
        self,
        from_time: datetime | str,
        to: datetime | str,
        *,
        max_runs: int | None = None,
        dry_run: bool = False,
        **order: Unpack[CommandOptions],
    ) -> ScheduleResponse:
        """The runs that the timetable had from `start` to `to`; `runs` of the answer names them."""
        fields = {**order, "from": from_time, "to": to, "dry_run": dry_run}
        limit = {} if max_runs is None else {"max": max_runs}
        return parse_response(
            ScheduleResponse, await self._command("schedule.backfill", {**fields, **limit})
        )

    async def cancel_run(
        self, run_id: str, *, note: str | None = None, request_id: str | None = None
    ) -> RunResponse:
        """A run that has not started will not; `status` is `in_flight` when it had."""
        fields = {"run_id": run_id, "note": note, "request_id": request_id}
        return parse_response(RunResponse, await self._command("run.cancel", fields))

    async def resolve_run(
        self,
        run_id: str,
        as_: Resolution | str,
        *,
        note: str | None = None,
        request_id: str | None = None,
    ) -> RunResponse:
        """Say what became of a held run: succeeded, skipped, or retry."""
        fields = {"run_id": run_id, "as": as_, "note": note, "request_id": request_id}
        return parse_response(RunResponse, await self._command("run.resolve", fields))

    async def schedule(self, **name: Unpack[ScheduleRef]) -> View:
        return await self._view("schedule.get", name)

    def schedules(
        self, *, limit: int | None = None, **only: Unpack[ScheduleListFields]
    ) -> AsyncIterator[View]:
        """All of them, page by page, or the first `limit`."""
        return self._rows("schedule.list", only, limit)

    async def versions(self, **name: Unpack[ScheduleRef]) -> list[View]:
        """Newest first, each with its definition and its fate."""
        found: list[View] = (await self._view("schedule.versions", name))["versions"]
        return found

    async def preview(
        self,
        *,
        definition: Mapping[str, Any] | None = None,
        count: int | None = None,
        after: datetime | str | None = None,
        **name: Unpack[ScheduleRef],
    ) -> View:
        """The next instants of a stored schedule, or of one that is not stored yet."""
        size = {} if count is None else {"count": count}
        fields = {**name, "definition": definition, "after": after, **size}
        return await self._view("schedule.preview", fields)

    async def why(self, *, at: datetime | str | None = None, **name: Unpack[ScheduleRef]) -> View:
        """What became of an instant (of the last one, without `at`), or what will, and why."""
        return await self._view("schedule.why", {**name, "at": at})

    async def run(self, run_id: str) -> View:
        """A run and its attempts."""
        return await self._view("run.get", {"run_id": run_id})

    def runs(
        self, *, limit: int | None = None, **only: Unpack[RunListFields]
    ) -> AsyncIterator[View]:
        """Newest first."""
        return self._rows("run.list", only, limit)
