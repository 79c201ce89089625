"""The root command `harebell` and the global options."""

from dataclasses import replace
from typing import Annotated, TypeAlias

import typer

from harebell.cli.command_tree import COMMAND_TREE
from harebell.cli.framework.lazy_commands import lazy_group
from harebell.cli.framework.options import (
    DEFAULT_TIMEOUT,
    AmqpUrl,
    AmqpUrlFile,
    ExchangeName,
    Format,
    GlobalOptions,
    OutputFormat,
    TenantName,
    Timeout,
)
from harebell.cli.framework.process import ProcessContext
from harebell.contract import __version__
from harebell.contract.amqp_names import DEFAULT_TENANT

app = typer.Typer(
    name="harebell",
    cls=lazy_group(COMMAND_TREE),
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
    amqp_url_file: AmqpUrlFile = None,
    tenant: TenantName = DEFAULT_TENANT,
    exchange: ExchangeName = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: OutputFormat = Format.TABLE,
    version: Version = False,  # noqa: ARG001  # its callback prints the version
) -> None:
    """Manage schedules, runs and dead letters of Harebell, a cron service on RabbitMQ.

    The global options may precede or follow the name of a command. The variables
    HAREBELL_AMQP_URL, HAREBELL_TENANT, HAREBELL_EXCHANGE, HAREBELL_TIMEOUT and HAREBELL_OUTPUT
    set their defaults. HAREBELL_AMQP_URL_FILE names a file with the URL.

    A TIME is ISO 8601 with an offset (2026-11-20T14:00:00Z) or a duration (10m, 2h, 7d).

    The exit codes are 0 (done), 1 (failed), 2 (wrong usage), 3 (nothing matched) and 4 (partly
    done).
    """
    process: ProcessContext = context.obj
    options = GlobalOptions(
        amqp_url=amqp_url,
        amqp_url_file=amqp_url_file,
        tenant=tenant,
        exchange=exchange,
        timeout=timeout,
        output=output,
    )
    context.obj = replace(process, options=options)
