"""The global options, and the options that several commands share."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from harebell.contract.amqp_names import DEFAULT_TENANT

DEFAULT_TIMEOUT: Final = 10.0  # seconds until the response of one request
MIN_TIMEOUT: Final = 0.1  # seconds
MAX_TIMEOUT: Final = 3600.0  # seconds
DEFAULT_LIMIT: Final = 50  # rows of a list


class Format(StrEnum):
    """The formats of the results."""

    TABLE = "table"
    JSON = "json"


AmqpUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--amqp-url",
        metavar="URL",
        envvar="HAREBELL_AMQP_URL",
        show_envvar=False,
        help="Connect to this broker (AMQP URL; commas separate the nodes of a cluster).",
    ),
]
AmqpUrlFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--amqp-url-file",
        metavar="FILE",
        envvar="HAREBELL_AMQP_URL_FILE",
        show_envvar=False,
        help="Read the URL of the broker from this file, so that no list of processes shows it.",
    ),
]
TenantName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--tenant",
        metavar="NAME",
        envvar="HAREBELL_TENANT",
        show_envvar=False,
        help="Use the schedules and runs of this tenant.",
    ),
]
ExchangeName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--exchange",
        metavar="NAME",
        envvar="HAREBELL_EXCHANGE",
        show_envvar=False,
        help="Publish to this exchange of the tenant: harebell.tenant.NAME.",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=MIN_TIMEOUT,
        max=MAX_TIMEOUT,
        metavar="SECONDS",
        envvar="HAREBELL_TIMEOUT",
        show_envvar=False,
        help="Wait this long for each response (seconds).",
    ),
]
OutputFormat: TypeAlias = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        envvar="HAREBELL_OUTPUT",
        show_envvar=False,
        help="Print the results in this format.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The options that may precede or follow the name of a command.

    Only these options read environment variables.
    """

    amqp_url: AmqpUrl = None
    amqp_url_file: AmqpUrlFile = None
    tenant: TenantName = DEFAULT_TENANT
    exchange: ExchangeName = None
    timeout: Timeout = DEFAULT_TIMEOUT
    output: OutputFormat = Format.TABLE


Limit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="Print at most this number of rows.")
]
State: TypeAlias = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Filter by this state.")
]
Tag: TypeAlias = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Filter by this tag of the schedule.")
]
Owner: TypeAlias = Annotated[
    str | None,
    typer.Option("--owner", metavar="OWNER", help="Filter by this owner of the schedule."),
]
NameFilter: TypeAlias = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Filter by this name of the schedule.")
]
Note: TypeAlias = Annotated[
    str | None,
    typer.Option("--note", metavar="TEXT", help="Record this note with the change."),
]
RequestId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="ID",
        help="Identify the command, so that a repeat gets the first response and changes nothing.",
    ),
]
Reveal: TypeAlias = Annotated[
    bool,
    typer.Option("--reveal", help="Show literal secrets. Only an operator may use this option."),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print what the command would do and change nothing.")
]
