"""`harebell import crontab`: the lines of a crontab as manifests. The command needs no broker."""

from dataclasses import dataclass
from typing import Annotated

import typer

from harebell.cli.arguments.documents import read_body
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.cli.imports.conversion import MAX_SOURCE_SIZE, print_conversion
from harebell.cli.imports.crontab_lines import MAX_LINES, CrontabOptions, convert_crontab
from harebell.contract.errors import InvalidInput

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabImportOptions:
    """The options of `import crontab`."""

    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="Read this crontab (- for standard input)."),
    ]
    task: Annotated[
        str,
        typer.Option(
            "--task",
            metavar="NAME",
            help="Call this task with the command line in its argument `command`.",
        ),
    ]
    timezone: Annotated[
        str,
        typer.Option("--timezone", metavar="NAME", help="Read the times in this time zone."),
    ]
    has_users: Annotated[
        bool,
        typer.Option("--system", help="Expect a user before each command, as in /etc/crontab."),
    ] = False
    key_prefix: Annotated[
        str,
        typer.Option("--key-prefix", metavar="TEXT", help="Begin each key with this text."),
    ] = "crontab."


@command(app, "crontab", global_options=("output",))
def import_crontab(session: Session, options: CrontabImportOptions) -> ExitCode:
    """Write the lines of a crontab in the form that `apply` reads (YAML, or JSON with -o json)."""
    try:
        text = read_body(options.file, MAX_SOURCE_SIZE).decode()
    except UnicodeDecodeError as error:
        reason = f"The crontab must be UTF-8, but byte {error.start} is not."
        raise InvalidInput(reason, code="not_text") from None
    if (count := len(text.splitlines())) > MAX_LINES:
        reason = f"The crontab must have at most {MAX_LINES} lines, not {count}."
        raise InvalidInput(reason, code="too_large")
    crontab = CrontabOptions(
        timezone=options.timezone,
        task=options.task,
        has_users=options.has_users,
        key_prefix=options.key_prefix,
    )
    return print_conversion(session, convert_crontab(text, crontab, now=session.now()))
