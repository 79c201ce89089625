"""`harebell why`: what happened, or will happen, at a scheduled time, and the reason."""

from dataclasses import dataclass
from typing import Annotated

import typer

from harebell.cli.arguments.schedule_ref import ScheduleRefOptions
from harebell.cli.arguments.values import optional_past_time
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.cli.run import ATTEMPT_COLUMNS, COLUMNS

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyOptions(ScheduleRefOptions):
    """The options of `why`."""

    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Explain this scheduled time (ISO 8601, or a duration ago, default: the last).",
        ),
    ] = None


@command(app, "why")
async def why(session: Session, options: WhyOptions) -> ExitCode:
    """Explain what happened, or will happen, at a scheduled time, and the reason."""
    at = optional_past_time(options.at, now=session.now(), field="at")
    ref = options.ref
    async with session.connect() as client:
        explanation = await client.why(**ref, at=at)
    session.output.print_record(explanation, run=COLUMNS, attempts=ATTEMPT_COLUMNS)
    return ExitCode.DONE
