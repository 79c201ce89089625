"""`harebell dlq replay`: dead runs are executed again, at once or as a replay job."""

from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated, Any, Final

import typer

from harebell.cli.arguments.values import rate_per_second
from harebell.cli.dlq.filters import DeadLetterFilterOptions, dead_letter_filter
from harebell.cli.dlq.output import print_results
from harebell.cli.dlq.replay_progress import print_replay_job
from harebell.cli.dlq.replays import Follow
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import DryRun, Note, RequestId
from harebell.cli.framework.session import Session
from harebell.client.requests import ReplayJobOptions
from harebell.contract.errors import InvalidInput

app = typer.Typer()

TOKEN_BYTES: Final = 8  # random bytes that keep the generated ids of two replay jobs apart


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(DeadLetterFilterOptions):
    """The options of `dlq replay`."""

    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Name the dead letters (ids)."),
    ] = None
    all_open: Annotated[
        bool, typer.Option("--all", help="Select all open dead letters of the tenant.")
    ] = False
    canary: Annotated[
        int | None,
        typer.Option(
            "--canary",
            min=1,
            metavar="N",
            help="Replay this number of dead letters first, and abort if one of them fails.",
        ),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Limit the number of replays per time (5/s or 100/m, default: no limit).",
        ),
    ] = None
    abort_on_failure_ratio: Annotated[
        float | None,
        typer.Option(
            "--abort-on-failure-ratio",
            min=0,
            max=1,
            metavar="RATIO",
            help="Abort after this part of the ended runs has failed (0 to 1, default: never).",
        ),
    ] = None
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool", metavar="NAME", help="Use this pool (default: the pool of each schedule)."
        ),
    ] = None
    dry_run: DryRun = False
    follow: Follow = False
    note: Note = None
    request_id: RequestId = None

    @property
    def needs_replay_job(self) -> bool:
        """True if an option is present that only a replay job has."""
        values = (self.canary, self.rate, self.abort_on_failure_ratio, self.pool)
        return self.dry_run or self.follow or any(each is not None for each in values)


@command(app, "replay")
async def replay(session: Session, options: ReplayOptions) -> ExitCode:
    """Replay dead runs: dead letters by id at once, or a selection as a replay job.

    A dead letter by id is also replayed by a replay job if an option of replay jobs is present.
    """
    select: dict[str, Any] = {**dead_letter_filter(options, session.now())}
    if options.all_open:
        select["all"] = True
    if bool(options.ids) == bool(select):
        raise InvalidInput(
            "The command needs either ids of dead letters, or a filter "
            "such as --group, --key, --tag, --error or --all.",
            code="invalid_reference",
        )
    fields: ReplayJobOptions = {
        "canary": options.canary,
        "rate": rate_per_second(options.rate),
        "abort_on_failure_ratio": options.abort_on_failure_ratio,
        "pool": options.pool,
        "dry_run": options.dry_run,
        "note": options.note,
    }
    async with session.connect() as client:
        if options.ids and not options.needs_replay_job:
            return print_results(session, await client.replay(options.ids, note=options.note))
        response = await client.start_replay_job(
            ids=options.ids,
            select=select or None,
            request_id=options.request_id or f"replay-{token_hex(TOKEN_BYTES)}",
            **fields,
        )
        return await print_replay_job(session, client, response, follow=options.follow)
