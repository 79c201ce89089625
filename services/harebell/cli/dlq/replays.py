"""`harebell dlq replay, jobs, job, pause, resume, abort`: running dead runs again."""

from secrets import token_hex
from typing import Annotated, Any, Final

import typer

from harebell.cli.arguments.values import per_second
from harebell.cli.dlq.filters import (
    NewerThan,
    OfError,
    OfGroup,
    OfKey,
    OfTag,
    OlderThan,
    Replayed,
    dead_letter_filter,
)
from harebell.cli.dlq.output import exit_code_of_replay_job, follow_replay_job, print_results
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import LIMIT, Limit, Note, RequestId
from harebell.cli.framework.session import Session
from harebell.client import Client, ReplayJobResponse
from harebell.client.requests import ReplayJobOptions
from harebell.contract.errors import InvalidInput

app = typer.Typer()  # joins that of `dead_letters`

ROW: Final = (
    *("id", "state", "reason", "total", "taken", "succeeded", "failed", "rejected"),
    *("actor", "note", "created_at", "finished_at"),
)
ITEM: Final = ("position", "id", "status", "outcome")
TOKEN: Final = 8  # random bytes that tell one order from another

Letters = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="As `dlq list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All that are open.")]
Canary = Annotated[
    int | None, typer.Option("--canary", min=1, help="So many first; no more if one fails.")
]
Rate = Annotated[str | None, typer.Option("--rate", help="At most: 5/s, 100/m.")]
Ratio = Annotated[
    float | None,
    typer.Option(
        "--abort-on-failure-ratio", min=0, max=1, help="No more once this part has failed: 0.2."
    ),
]
Pool = Annotated[str | None, typer.Option("--pool", help="In place of that of the schedules.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many, and do nothing.")]
Follow = Annotated[bool, typer.Option("--follow", help="Watch it to its end.")]
Items = Annotated[bool, typer.Option("--items", help="What became of each letter.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="As `dlq jobs` shows it.")]


@command(app, "replay")
async def replay(
    session: Session,
    *,
    letters: Letters = None,
    all: All = False,  # noqa: A002  # the option's name
    group: OfGroup = None,
    key: OfKey = None,
    tag: OfTag = None,
    error: OfError = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    replayed: Replayed = None,
    canary: Canary = None,
    rate: Rate = None,
    abort_on_failure_ratio: Ratio = None,
    pool: Pool = None,
    dry_run: DryRun = False,
    watch: Follow = False,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Run dead runs again: those named at once, or all that match, little by little."""
    only = dead_letter_filter(session, group, key, tag, error, older_than, newer_than, replayed)
    select: dict[str, Any] = {**only, **({"all": True} if all else {})}
    if bool(letters) == bool(select):
        reason = "name dead letters, or say which: --group, --key, --tag, --error, ..., or --all"
        raise InvalidInput(reason, code="invalid_reference")
    how: ReplayJobOptions = {"canary": canary, "abort_on_failure_ratio": abort_on_failure_ratio}
    how |= {"rate": per_second(rate), "pool": pool}
    async with session.harebell() as harebell:
        if letters and not (dry_run or watch) and not any(how.values()):
            return print_results(session, await harebell.replay(letters, note=note))
        how |= {"dry_run": dry_run, "note": note}
        answer = await harebell.start_replay_job(
            ids=letters,
            select=select or None,
            request_id=request_id or f"replay-{token_hex(TOKEN)}",
            **how,
        )
        return await _show(session, harebell, answer, watch=watch)


@command(app, "jobs")
async def jobs(session: Session, limit: Limit = LIMIT) -> ExitCode:
    """List replays of many, newest first: who, when, how far, what came of them."""
    async with session.harebell() as harebell:
        rows = [row async for row in harebell.replay_jobs(limit=limit)]
    session.output.rows(rows, ROW)
    return exit_code_of_many(done=len(rows))


@command(app, "job")
async def job(
    session: Session, *, job: Job, follow_it: Follow = False, items: Items = False
) -> ExitCode:
    """Show a replay of many; 1 where it was aborted, 4 where some of it failed."""
    async with session.harebell() as harebell:
        shown = await (follow_replay_job(harebell, job) if follow_it else harebell.replay_job(job))
        if items:
            shown["items"] = [item async for item in harebell.replay_job_items(job)]
    session.output.record(shown, items=ITEM)
    return exit_code_of_replay_job(shown)


@command(app, "pause")
async def pause(session: Session, job: Job, note: Note = None) -> ExitCode:
    """Replay no more of it until resumed."""
    async with session.harebell() as harebell:
        return await _show(session, harebell, await harebell.pause_replay_job(job, note=note))


@command(app, "resume")
async def resume(
    session: Session, *, job: Job, note: Note = None, watch: Follow = False
) -> ExitCode:
    """Go on where it was paused."""
    async with session.harebell() as harebell:
        answer = await harebell.resume_replay_job(job, note=note)
        return await _show(session, harebell, answer, watch=watch)


@command(app, "abort")
async def abort(session: Session, job: Job, note: Note = None) -> ExitCode:
    """Replay no more of it, for good; the rest stays on the desk."""
    async with session.harebell() as harebell:
        return await _show(session, harebell, await harebell.abort_replay_job(job, note=note))


async def _show(
    session: Session, harebell: Client, answer: ReplayJobResponse, *, watch: bool = False
) -> ExitCode:
    if watch and answer.id is not None:
        shown = await follow_replay_job(harebell, answer.id)
        session.output.record(shown)
        return exit_code_of_replay_job(shown)
    session.output.record(answer.model_dump(mode="json", exclude_none=True))
    return ExitCode.FAILED if answer.status == "unchanged" else exit_code_of_many(done=answer.total)
