"""`harebell schedule pause`, `resume` and `cancel`, for one schedule or as a bulk operation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from harebell.cli.arguments.values import optional_future_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.session import Session
from harebell.cli.schedule.filters import ScheduleSelection, SelectionOptions, bulk_operation_id
from harebell.cli.schedule.manage import print_in_flight, print_schedule, print_superseded
from harebell.client import BulkResponse, Client, ScheduleResponse

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verb:
    """A command, and the methods of the client for one schedule and for several schedules."""

    name: str
    one: Callable[..., Awaitable[ScheduleResponse]]
    several: Callable[..., Awaitable[BulkResponse]]


_PAUSE: Final = _Verb(name="pause", one=Client.pause, several=Client.pause_all)
_RESUME: Final = _Verb(name="resume", one=Client.resume, several=Client.resume_all)
_CANCEL: Final = _Verb(name="cancel", one=Client.cancel, several=Client.cancel_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions(SelectionOptions):
    """The options of `schedule pause`."""

    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Resume automatically at this time "
            "(ISO 8601, or a duration from now, default: never).",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions(SelectionOptions):
    """The options of `schedule resume`."""

    bulk_operation: Annotated[
        str | None,
        typer.Option(
            "--bulk-operation",
            metavar="ID",
            help="Select exactly the schedules that this bulk operation changed.",
        ),
    ] = None


@command(app, "pause")
async def pause(session: Session, options: PauseOptions) -> ExitCode:
    """Pause one schedule, or all schedules that match a filter.

    A paused schedule stages no runs.
    With a filter, the command prints the id of the bulk operation.
    """
    selection = options.selection()
    until = optional_future_time(options.until, now=session.now(), field="until")
    return await _send(_PAUSE, session, options, selection=selection, until=until)


@command(app, "resume")
async def resume(session: Session, options: ResumeOptions) -> ExitCode:
    """Resume one schedule, all schedules that match a filter, or those of a bulk operation.

    The catch-up policy decides which missed scheduled times still get a run.
    """
    selection = options.selection(options.bulk_operation)
    return await _send(_RESUME, session, options, selection=selection)


@command(app, "cancel")
async def cancel(session: Session, options: SelectionOptions) -> ExitCode:
    """Cancel one schedule permanently, or all schedules that match a filter."""
    return await _send(_CANCEL, session, options, selection=options.selection())


async def _send(
    verb: _Verb,
    session: Session,
    options: SelectionOptions,
    *,
    selection: ScheduleSelection,
    **fields: Any,  # noqa: ANN401  # the fields of one verb
) -> ExitCode:
    """Send the command for the selected schedules and print the response."""
    fields["note"] = options.note
    async with session.connect() as client:
        if selection.one is not None:
            response = await verb.one(
                client, **selection.one, request_id=options.request_id, **fields
            )
            return print_schedule(session.output, response)
        if selection.bulk_operation_id is not None:
            fields["bulk_operation_id"] = selection.bulk_operation_id
        bulk_response = await verb.several(
            client,
            select=selection.select,
            request_id=bulk_operation_id(verb.name, options.request_id, session.now()),
            **fields,
        )
    return _print_bulk(session, bulk_response)


def _print_bulk(session: Session, response: BulkResponse) -> ExitCode:
    session.output.print_record(response)
    print_in_flight(session.output, response.in_flight)
    for versions in response.supersedes.values():
        print_superseded(session.output, versions)
    for schedule, reason in response.rejected.items():
        session.output.print_message(f"{schedule}: {reason}")
    return exit_code_of_many(done=len(response.changed), failed=len(response.rejected))
