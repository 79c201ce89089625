"""`harebell run`: what was owed, and what became of it."""

from typing import Annotated, Final

import typer

from harebell.cli.arguments.schedule_ref import Id, Key
from harebell.cli.arguments.values import past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import LIMIT, Limit, Note, RequestId, State
from harebell.cli.framework.session import Session
from harebell.contract.commands import Resolution

app = typer.Typer(
    help="See runs; cancel one that has not started, resolve one that is held.",
    no_args_is_help=True,
)

ROW: Final = (
    *("run_id", "key", "due_at", "started_at", "late_ms", "attempt", "state", "reason"),
    *("outcome", "next_attempt_at"),
)
ATTEMPT: Final = (
    *("replay_number", "number", "started_at", "finished_at", "duration_ms", "outcome"),
    *("error_code", "http_status", "error", "lease_holder"),
)
CANCELLED: Final = "cancelled"

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="As `run list` shows it.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help="An instant (2026-11-20T14:00:00Z), or how long ago (10m)."),
]
Until = Annotated[str | None, typer.Option("--until", help="The same, of the last ones.")]
TagFilter = Annotated[str | None, typer.Option("--tag", help="Only of schedules with this tag.")]
Outcome = Annotated[str | None, typer.Option("--outcome", help="Of the last attempt.")]
ReasonFilter = Annotated[
    str | None, typer.Option("--reason", help="Only those with this reason: paused, catch_up, ...")
]
As = Annotated[Resolution, typer.Option("--as", help="What became of it.")]


@command(app, "list")
async def list_runs(
    session: Session,
    *,
    key: Key = None,
    id: Id = None,  # noqa: A002  # the option's name
    tag: TagFilter = None,
    state: State = None,
    outcome: Outcome = None,
    reason: ReasonFilter = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = LIMIT,
) -> ExitCode:
    """List runs, newest first; of one schedule, or of all."""
    now = session.surroundings.now()
    start = None if since is None else past_time(since, now=now, field="since")
    end = None if until is None else past_time(until, now=now, field="until")
    async with session.harebell() as harebell:
        found = harebell.runs(
            key=key,
            id=id,
            tag=tag,
            state=state,
            outcome=outcome,
            reason=reason,
            since=start,
            until=end,
            limit=limit,
        )
        rows = [row async for row in found]
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "get")
async def get(session: Session, run_id: RunId) -> ExitCode:
    """Show one run with its attempts."""
    async with session.harebell() as harebell:
        session.output.record(await harebell.run(run_id), attempts=ATTEMPT)
    return ExitCode.DONE


@command(app, "cancel")
async def cancel(
    session: Session, run_id: RunId, note: Note = None, request_id: RequestId = None
) -> ExitCode:
    """Cancel a run that has not started; one that has been claimed is exit code 1."""
    async with session.harebell() as harebell:
        answer = await harebell.cancel_run(run_id, note=note, request_id=request_id)
    session.output.record(answer.model_dump(mode="json"))
    if answer.status == CANCELLED:
        return ExitCode.DONE
    session.output.say(f"harebell: {run_id} is not cancelled: {answer.status} ({answer.state})")
    return ExitCode.FAILED


@command(app, "resolve")
async def resolve(
    session: Session, *, run_id: RunId, as_: As, note: Note = None, request_id: RequestId = None
) -> ExitCode:
    """Say what became of a held run; its schedule goes on when none is held."""
    async with session.harebell() as harebell:
        answer = await harebell.resolve_run(run_id, as_, note=note, request_id=request_id)
    session.output.record(answer.model_dump(mode="json"))
    return ExitCode.DONE
