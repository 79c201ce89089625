"""The command tree: the options of all commands, and the groups."""

from dataclasses import replace
from typing import Annotated

import typer

from harebell.cli import audit, breaker, dev, run, topology
from harebell.cli.dlq import dead_letters, edit, export_import, groups, replays
from harebell.cli.framework.command import AmqpUrl, Form, Tenant, Timeout, command
from harebell.cli.framework.output import Format
from harebell.cli.framework.session import Options, ProcessContext
from harebell.cli.manifests import apply
from harebell.cli.schedule import history, manage, pause_resume_cancel, preview
from harebell.client.base import DEFAULT_TENANT
from harebell.client.client import DEFAULT_TIMEOUT
from harebell.contract import __version__

app = typer.Typer(
    name="harebell",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: help and errors read the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "HAREBELL", "help_option_names": ["-h", "--help"]},
)
for part in (pause_resume_cancel, preview, history):
    manage.app.add_typer(part.app)
for part in (groups, replays, edit, export_import):
    dead_letters.app.add_typer(part.app)
app.add_typer(manage.app, name="schedule")
app.add_typer(run.app, name="run")
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(breaker.app, name="breaker")
app.add_typer(dev.app, name="dev")
app.add_typer(topology.app, name="topology")
command(app, "why")(preview.why)
command(app, "audit")(audit.audit)
command(app, "apply")(apply.apply)
command(app, "export")(apply.export)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # typer calls it so
    if wanted:
        typer.echo(f"harebell {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        is_eager=True,
        callback=_print_version,
        allow_from_autoenv=False,  # HAREBELL_VERSION is a likely name for something else
        help="Print the version.",
    ),
]


@app.callback()
def harebell(
    context: typer.Context,
    *,
    amqp_url: AmqpUrl = None,
    tenant: Tenant = DEFAULT_TENANT,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Form = Format.TABLE,
    version: Version = False,  # noqa: ARG001  # done by its callback
) -> None:
    """Cron-as-a-service on RabbitMQ: put schedules, see their runs, work the dead letters.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing matched, 4 partly done.
    """
    surroundings: ProcessContext = context.obj
    options = Options(
        amqp_url=amqp_url,
        tenant=tenant or DEFAULT_TENANT,
        timeout=timeout or DEFAULT_TIMEOUT,
        output=output or Format.TABLE,
    )
    context.obj = replace(surroundings, options=options)
