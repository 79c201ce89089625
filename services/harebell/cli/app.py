"""The root command `harebell`: its groups, its commands and the global options."""

from dataclasses import replace
from typing import Annotated, TypeAlias

import typer

from harebell.cli import audit, breaker, dev, run, topology, why
from harebell.cli.dlq import dead_letters, edit, export_import, groups, replay, replays, watch
from harebell.cli.framework.command import command
from harebell.cli.framework.options import (
    AmqpUrl,
    GlobalOptions,
    OutputFormat,
    TenantName,
    Timeout,
)
from harebell.cli.framework.output import Format
from harebell.cli.framework.session import ProcessContext
from harebell.cli.manifests import apply, export
from harebell.cli.schedule import history, manage, pause_resume_cancel, preview
from harebell.client.base import DEFAULT_TENANT
from harebell.client.client import DEFAULT_TIMEOUT
from harebell.contract import __version__

app = typer.Typer(
    name="harebell",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, so that help and errors are the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:  # noqa: FBT001  # typer passes it by position
    if is_requested:
        typer.echo(f"harebell {__version__}")
        raise typer.Exit


Version: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    ),
]


@app.callback()
def harebell(
    context: typer.Context,
    *,
    amqp_url: AmqpUrl = None,
    tenant: TenantName = DEFAULT_TENANT,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: OutputFormat = Format.TABLE,
    version: Version = False,  # noqa: ARG001  # its callback prints the version
) -> None:
    """Manage schedules, runs and dead letters of Harebell, a cron service on RabbitMQ.

    The global options may precede or follow the name of a command. The variables
    HAREBELL_AMQP_URL, HAREBELL_TENANT, HAREBELL_TIMEOUT and HAREBELL_OUTPUT set their defaults.

    A TIME is ISO 8601 with an offset (2026-11-20T14:00:00Z) or a duration (10m, 2h, 7d).

    The exit codes are 0 (done), 1 (failed), 2 (wrong usage), 3 (nothing matched) and 4 (partly
    done).
    """
    process: ProcessContext = context.obj
    options = GlobalOptions(amqp_url=amqp_url, tenant=tenant, timeout=timeout, output=output)
    context.obj = replace(process, options=options)


# Each module of a group has its own `typer.Typer`, and the group adds their commands to its own.
for part in (pause_resume_cancel, preview, history):
    manage.app.add_typer(part.app)
command(manage.app, "why")(why.why)
for part in (replay, edit, export_import, watch):
    dead_letters.app.add_typer(part.app)
dead_letters.app.add_typer(groups.app, name="groups")
dead_letters.app.add_typer(replays.app, name="replays")

app.add_typer(manage.app, name="schedule")
app.add_typer(run.app, name="run")
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(breaker.app, name="breaker")
app.add_typer(dev.app, name="dev")
app.add_typer(topology.app, name="topology")
command(app, "why")(why.why)
command(app, "audit")(audit.audit)
command(app, "apply")(apply.apply)
command(app, "export")(export.export)
