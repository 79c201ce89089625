"""The client of one tenant: changes of schedules and runs, and queries about them.

Each call sends one request and returns its response in time, or raises one of these errors.

* CommandRejected      Harebell rejected the request.
* InvalidInput         The client found the error and sent nothing.
* Unroutable           No Harebell runs at the broker.
* NotAllowed           The broker does not permit the request.
* BrokerUnavailable    The outcome is unknown, and a repeat with the same `request_id` is safe.
* ResponseTimeout      The outcome is unknown, and a repeat with the same `request_id` is safe.
"""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Self, Unpack

from harebell.client.base import parse_response, parse_responses
from harebell.client.breakers import BreakerMethods
from harebell.client.calendars import CalendarMethods
from harebell.client.dead_letters import DeadLetterMethods
from harebell.client.reports import ReportMethods
from harebell.client.requests import (
    CommandOptions,
    ForecastFields,
    RunListFields,
    Schedule,
    ScheduleListFields,
    ScheduleRef,
    check_size,
    schedule_bytes,
)
from harebell.client.rpc import RpcChannel
from harebell.connection.amqp import Connection, login_of
from harebell.contract import __version__
from harebell.contract.amqp_names import COMMANDS, DEFAULT_TENANT, OPERATIONS_TENANT
from harebell.contract.commands import Resolution
from harebell.contract.policy import Overlap
from harebell.contract.queries import ForecastGrouping
from harebell.contract.responses import (
    BulkResponse,
    ErrorResponse,
    Page,
    RunResponse,
    ScheduleResponse,
)
from harebell.contract.views import (
    ExplanationView,
    ForecastView,
    PreviewView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduleView,
    TenantUsageView,
    VersionListView,
    VersionView,
)

DEFAULT_TIMEOUT: Final = 10.0  # seconds, from the call to its response


class Client(DeadLetterMethods, BreakerMethods, CalendarMethods, ReportMethods):
    """A client of one tenant, which any number of tasks may use concurrently."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        tenant: str = DEFAULT_TENANT,
        exchange: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # of each call, not of the connection
        name: str = "harebell-client",
    ) -> AsyncIterator[Self]:
        """Connect to one broker, or to a node of a cluster, whose URLs a comma separates.

        Harebell acts for the user of the URL, or for guest without one. A login of one tenant
        needs the exchange of the tenant: `harebell.tenant.acme`. Raise `InvalidInput` for
        another URL than `amqp` or `amqps`, and `BrokerUnavailable` if no node responds.
        """
        host = socket.gethostname()
        properties = {"service": name, "version": __version__, "host": host}
        connection = Connection(url, name=f"{name}@{host}", properties=properties)
        await connection.open()
        try:
            yield cls(
                RpcChannel(connection, timeout=timeout, user=login_of(url)),
                tenant=tenant,
                exchange=exchange,
            )
        finally:
            await connection.close()

    async def put(self, schedule: Schedule) -> ScheduleResponse:
        """Create or replace a schedule. The response follows the commit.

        Harebell rejects a cancelled or completed schedule (`schedule_ended`), unless its field
        `revive` is true.
        """
        body = check_size(schedule_bytes(schedule))
        return parse_response(ScheduleResponse, await self._request(COMMANDS, "schedule.put", body))

    async def put_many(
        self, schedules: Sequence[Schedule]
    ) -> list[ScheduleResponse | ErrorResponse]:
        """Put up to 500 schedules in one message, in order. Each has its own response."""
        if not schedules:
            return []
        body = check_size(b"[" + b",".join(map(schedule_bytes, schedules)) + b"]")
        reply = await self._request(COMMANDS, "schedule.put", body)
        return parse_responses(ScheduleResponse, reply, expected=len(schedules))

    async def patch(
        self,
        set: Mapping[str, Any],  # noqa: A002  # the name of the field
        *,
        expected_version: int | None = None,
        effective_at: datetime | str | None = None,
        revive: bool = False,
        **options: Unpack[CommandOptions],
    ) -> ScheduleResponse:
        """Change some fields of a schedule. The value None restores the default of a field.

        An ended schedule starts again only with `revive`.
        """
        fields = {
            **options,
            "set": set,
            "expected_version": expected_version,
            "effective_at": effective_at,
            **({"revive": True} if revive else {}),  # absent, so that older services accept it
        }
        return await self._command(ScheduleResponse, "schedule.patch", fields)

    async def pause(
        self, *, until: datetime | str | None = None, **options: Unpack[CommandOptions]
    ) -> ScheduleResponse:
        """Pause a schedule until `resume`, or until a time."""
        fields = {**options, "until": until}
        return await self._command(ScheduleResponse, "schedule.pause", fields)

    async def resume(self, **options: Unpack[CommandOptions]) -> ScheduleResponse:
        """Resume a paused schedule."""
        return await self._command(ScheduleResponse, "schedule.resume", options)

    async def cancel(self, **options: Unpack[CommandOptions]) -> ScheduleResponse:
        """Cancel a schedule permanently."""
        return await self._command(ScheduleResponse, "schedule.cancel", options)

    async def delete(self, **options: Unpack[CommandOptions]) -> ScheduleResponse:
        """Remove an ended schedule from the lists. Its versions and its runs stay readable."""
        return await self._command(ScheduleResponse, "schedule.delete", options)

    async def pause_all(
        self,
        select: Mapping[str, str],
        *,
        request_id: str,
        until: datetime | str | None = None,
        note: str | None = None,
    ) -> BulkResponse:
        """Pause all schedules that match `tag`, `owner`, `name` and `state`.

        The id of the bulk operation is `request_id`.
        """
        fields = {"select": select, "request_id": request_id, "until": until, "note": note}
        return await self._command(BulkResponse, "schedule.pause", fields)

    async def resume_all(
        self,
        select: Mapping[str, str] | None = None,
        *,
        request_id: str,
        bulk_operation_id: str | None = None,
        note: str | None = None,
    ) -> BulkResponse:
        """Resume all schedules that match, or those that an earlier bulk operation changed."""
        fields = {
            "select": select,
            "bulk_operation_id": bulk_operation_id,
            "request_id": request_id,
            "note": note,
        }
        return await self._command(BulkResponse, "schedule.resume", fields)

    async def cancel_all(
        self, select: Mapping[str, str], *, request_id: str, note: str | None = None
    ) -> BulkResponse:
        """Cancel all schedules that match, permanently."""
        fields = {"select": select, "request_id": request_id, "note": note}
        return await self._command(BulkResponse, "schedule.cancel", fields)

    async def trigger(
        self, *, overlap: Overlap | str | None = None, **options: Unpack[CommandOptions]
    ) -> ScheduleResponse:
        """Stage one manual run at once. The response contains its `run_id`."""
        fields = {**options, "overlap": overlap}
        return await self._command(ScheduleResponse, "schedule.trigger", fields)

    async def skip(self, at: datetime | str, **options: Unpack[CommandOptions]) -> ScheduleResponse:
        """Skip the run of one scheduled time."""
        return await self._command(ScheduleResponse, "schedule.skip", {**options, "at": at})

    async def backfill(
        self,
        from_time: datetime | str,
        to: datetime | str,
        *,
        max_runs: int | None = None,
        dry_run: bool = False,
        **options: Unpack[CommandOptions],
    ) -> ScheduleResponse:
        """Stage manual runs for the past scheduled times of a range that have no run.

        Both ends are inclusive. The response contains the run ids as `runs`.
        """
        fields = {**options, "from": from_time, "to": to, "dry_run": dry_run}
        if max_runs is not None:
            fields["max"] = max_runs
        return await self._command(ScheduleResponse, "schedule.backfill", fields)

    async def cancel_run(
        self, run_id: str, *, note: str | None = None, request_id: str | None = None
    ) -> RunResponse:
        """Cancel a run. The status of a run that has already started is `in_flight`."""
        fields = {"run_id": run_id, "note": note, "request_id": request_id}
        return await self._command(RunResponse, "run.cancel", fields)

    async def resolve_run(
        self,
        run_id: str,
        as_: Resolution | str,
        *,
        note: str | None = None,
        request_id: str | None = None,
    ) -> RunResponse:
        """Resolve an unresolved run as succeeded, skipped or retry."""
        fields = {"run_id": run_id, "as": as_, "note": note, "request_id": request_id}
        return await self._command(RunResponse, "run.resolve", fields)

    async def schedule(
        self, *, reveal: bool = False, **reference: Unpack[ScheduleRef]
    ) -> ScheduleDetail:
        """Return one schedule with its definition.

        Literal secrets are `***`, except for an operator with `reveal`.
        """
        fields = {**reference, "reveal": True} if reveal else reference
        schedule: ScheduleDetail = await self._query("schedule.get", fields)
        return schedule

    def schedules(
        self, *, limit: int | None = None, **fields: Unpack[ScheduleListFields]
    ) -> AsyncIterator[ScheduleView]:
        """Yield the schedules that match, the newest first, all of them or the first `limit`."""
        return self._rows("schedule.list", fields, limit)

    async def versions(
        self, *, reveal: bool = False, **reference: Unpack[ScheduleRef]
    ) -> list[VersionView]:
        """Return the versions of a schedule, the newest first.

        Literal secrets are `***`, except for an operator with `reveal`.
        """
        fields = {**reference, "reveal": True} if reveal else reference
        found: VersionListView = await self._query("schedule.versions", fields)
        return found.versions

    async def preview(
        self,
        *,
        definition: Mapping[str, Any] | None = None,
        count: int | None = None,
        after: datetime | str | None = None,
        **reference: Unpack[ScheduleRef],
    ) -> PreviewView:
        """Return the next scheduled times of a schedule or of a definition that is not stored."""
        fields: dict[str, Any] = {**reference, "definition": definition, "after": after}
        if count is not None:
            fields["count"] = count
        preview: PreviewView = await self._query("schedule.preview", fields)
        return preview

    async def why(
        self, *, at: datetime | str | None = None, **reference: Unpack[ScheduleRef]
    ) -> ExplanationView:
        """Return the reason why a run did or did not start. `at` defaults to the last time."""
        explanation: ExplanationView = await self._query("schedule.why", {**reference, "at": at})
        return explanation

    async def run(self, run_id: str) -> RunDetail:
        """Return one run with its attempts."""
        run: RunDetail = await self._query("run.get", {"run_id": run_id})
        return run

    def runs(
        self, *, limit: int | None = None, **fields: Unpack[RunListFields]
    ) -> AsyncIterator[RunView]:
        """Yield the runs that match, the newest first, all of them or the first `limit`."""
        return self._rows("run.list", fields, limit)

    async def tenant_usage(self, *, all_tenants: bool = False) -> AsyncIterator[TenantUsageView]:
        """Yield the quotas of the tenant and their use, or those of all tenants for an operator."""
        tenant = OPERATIONS_TENANT if all_tenants else None
        after: str | None = None
        while True:
            fields = {} if after is None else {"after": after}
            page: Page[TenantUsageView] = await self._query("tenant.usage", fields, tenant=tenant)
            for item in page.items:
                yield item
            after = page.next
            if after is None:
                return

    async def forecast(
        self, *, own: bool = False, **fields: Unpack[ForecastFields]
    ) -> ForecastView:
        """Return the number of runs in each hour, by default of the next 24 hours and of all pools.

        With `own`, count the runs of this client's tenant. Otherwise, count those of all tenants,
        which needs the login of an operator.
        """
        query = {"to": fields.get("to"), "by": fields.get("by", ForecastGrouping.POOL)}
        query["from"] = fields.get("from_time")
        tenant = None if own else OPERATIONS_TENANT
        forecast: ForecastView = await self._query("run.forecast", query, tenant=tenant)
        return forecast
