"""`harebell schedule history, diff, rollback`: the versions of a schedule."""

from typing import Annotated, Any, Final

import typer

from harebell.cli.arguments.schedule_ref import schedule_ref
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note, RequestId
from harebell.cli.framework.session import Session
from harebell.cli.manifests.plan import diff_definitions
from harebell.cli.schedule.manage import show
from harebell.client import Client
from harebell.client.requests import ScheduleRef
from harebell.contract.errors import InvalidInput, NotFound

app = typer.Typer()  # joins that of `schedules`

ROW: Final = (
    *("version", "in_force", "status", "status_reason", "accepted_at", "effective_at"),
    *("actor", "note"),
)
DIFFERENCE: Final = ("field", "before", "after")

Named = Annotated[str, typer.Argument(metavar="KEY", help="The schedule's key, or its id.")]
Number = Annotated[int, typer.Argument(metavar="VERSION", min=1)]


@command(app, "history")
async def history(session: Session, name: Named) -> ExitCode:
    """List its versions, newest first: who made them, when they take effect, their fates."""
    async with session.harebell() as harebell:
        rows = await harebell.versions(**schedule_ref(name, None, None))
    session.output.rows(rows, ROW)
    return ExitCode.DONE


@command(app, "diff")
async def diff(session: Session, name: Named, first: Number, second: Number) -> ExitCode:
    """Show where two versions differ; 3 where they do not."""
    async with session.harebell() as harebell:
        versions = await _versions(harebell, schedule_ref(name, None, None))
    before, after = _version(versions, first), _version(versions, second)
    rows = diff_definitions(before["definition"], after["definition"])
    session.output.rows(rows, DIFFERENCE)
    return exit_code_of_many(done=len(rows))


@command(app, "rollback")
async def rollback(
    session: Session,
    name: Named,
    version: Number,
    note: Note = None,
    request_id: RequestId = None,
) -> ExitCode:
    """Make a new version that is as an old one was."""
    async with session.harebell() as harebell:
        versions = await _versions(harebell, schedule_ref(name, None, None))
        wanted = _version(versions, version)["definition"]
        if "key" not in wanted:
            raise InvalidInput("a schedule without a key cannot be put again", code="no_key")
        change = {
            "expected_version": next(n for n, each in versions.items() if each["in_force"]),
            "note": note or f"as version {version} was",
            **({} if request_id is None else {"request_id": request_id}),
        }
        return show(session.output, await harebell.put({**wanted, **change}))


async def _versions(harebell: Client, named: ScheduleRef) -> dict[int, dict[str, Any]]:
    return {each["version"]: each for each in await harebell.versions(**named)}


def _version(versions: dict[int, dict[str, Any]], number: int) -> dict[str, Any]:
    if number not in versions:
        raise NotFound(f"there is no version {number}; the latest is {max(versions)}")
    return versions[number]
