"""The client methods of workers: reports about delegated runs."""

from datetime import timedelta

from harebell.client.base import ClientBase
from harebell.contract.responses import RunResponse
from harebell.contract.types import Json


class ReportMethods(ClientBase):
    """The methods for delegated runs. Each call has the fencing token of the run.

    If the token is not that of the present attempt, `CommandRejected` is raised with the code
    `stale_token`. If you repeat a report, it has no second effect.
    """

    async def complete_run(
        self, run_id: str, fencing_token: int, *, result: Json = None
    ) -> RunResponse:
        """Complete a delegated run as succeeded. `result` has at most 1 KiB of JSON."""
        fields = {"run_id": run_id, "fencing_token": fencing_token, "result": result}
        return await self._command(RunResponse, "run.complete", fields)

    async def fail_run(
        self,
        run_id: str,
        fencing_token: int,
        *,
        code: str,
        reason: str = "",
        retryable: bool = True,
        retry_after: timedelta | str | None = None,
    ) -> RunResponse:
        """Fail the attempt of a delegated run. The retry policy of its schedule then applies."""
        fields = {"run_id": run_id, "fencing_token": fencing_token, "code": code}
        more = {"reason": reason, "retryable": retryable, "retry_after": retry_after}
        return await self._command(RunResponse, "run.fail", {**fields, **more})

    async def heartbeat(
        self,
        run_id: str,
        fencing_token: int,
        *,
        percent: float | None = None,
        message: str | None = None,
        checkpoint: Json = None,
    ) -> RunResponse:
        """Renew the lease of a delegated run. `stop_reason` is set if the worker must stop.

        The report keeps the last value of each field that it omits.
        """
        progress = {"percent": percent, "message": message, "checkpoint": checkpoint}
        given = {name: value for name, value in progress.items() if value is not None}
        fields = {"run_id": run_id, "fencing_token": fencing_token, **given}
        return await self._command(RunResponse, "run.heartbeat", fields)
