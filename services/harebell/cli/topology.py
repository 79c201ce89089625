"""`harebell topology`: the topology for RabbitMQ and Kubernetes, or compared with a broker."""

import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import orjson
import typer
import yaml

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Format
from harebell.cli.framework.session import CLIENT_NAME, Session
from harebell.connection.amqp import connect
from harebell.contract import __version__
from harebell.contract.amqp_names import tenant_exchange
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.messaging import declare
from harebell.messaging.topology.bus import (
    SYSTEM,
    consumed_queues,
    delayed_queue,
    delayed_topology,
    tenant_topology,
    undelivered_queue_of_delayed,
)
from harebell.messaging.topology.declarations import ExchangeKind
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.messaging.topology.operator_manifests import ManifestOptions, operator_manifests
from harebell.messaging.topology.permissions import operator_user
from harebell.runtime.policy_file import MAX_FILE_SIZE, parse_policies

app = typer.Typer()

NO_INTAKE: Final = (
    "No service consumes this queue. Name its tenant in HAREBELL_TENANTS_FILE or "
    "HAREBELL_TENANTS of intake and of the dlq_inspector."
)
NO_DELAYED_INTAKE: Final = (
    "No service consumes this queue, so its messages wait. Name the tenant of its exchange in "
    "HAREBELL_TENANTS_FILE or HAREBELL_DELAYED_EXCHANGES of intake and of the dlq_inspector."
)

MAX_PASSWORD_FILE_SIZE: Final = 1024 * 1024  # bytes


DelayedExchanges: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--delayed-exchange",
        metavar="NAME[=TYPE]",
        help="Add NAME for delayed messages, and NAME.due of this type (repeatable, topic).",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionsOptions:
    """The options of `topology definitions`."""

    vhost: Annotated[
        str, typer.Option("--vhost", metavar="NAME", help="Use this virtual host of RabbitMQ.")
    ] = "/"
    pools: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            metavar="NAME",
            help="Add the work queues of this pool (repeatable, default: the default pool only).",
        ),
    ] = None
    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant", metavar="NAME", help="Add a user for this tenant (repeatable)."
        ),
    ] = None
    tenants_file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--tenants-file",
            metavar="FILE|-",
            help="Read quotas and the queues of the tenants from this document.",
        ),
    ] = None
    delayed_exchanges: DelayedExchanges = None
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operator",
            metavar="NAME",
            help="Add the user harebell_operator_NAME for this person (repeatable).",
        ),
    ] = None
    passwords: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--passwords",
            metavar="FILE|-",
            help="Read the password of each user (JSON object) and print salted hashes.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsOptions(DefinitionsOptions):
    """The options of `topology manifests`."""

    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Refer to this RabbitmqCluster.")
    ] = "rabbitmq"
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            metavar="NAME",
            help="Write this namespace into each object (default: none).",
        ),
    ] = None
    has_cluster: Annotated[
        bool,
        typer.Option("--with-cluster", help="Also print an example of the RabbitmqCluster."),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyCheckOptions:
    """The options of `topology check`."""

    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant",
            metavar="NAME",
            help="Check the intake queue of this tenant and its consumer (repeatable).",
        ),
    ] = None
    delayed_exchanges: DelayedExchanges = None


@command(app, "check")
async def check(session: Session, options: TopologyCheckOptions) -> ExitCode:
    """Print each part of the topology that the broker lacks or has differently."""
    fields = {
        "tenants": options.tenants or (),
        "delayed_exchanges": _delayed(options.delayed_exchanges),
    }
    installation = parse(InstallationOptions, fields)
    problems = await _find_problems(session.amqp_url, installation)
    session.output.print_rows([{"problem": problem} for problem in problems], ("problem",))
    if problems:
        session.output.print_message(
            f"The topology of the broker differs (problems: {len(problems)})."
        )
        return ExitCode.FAILED
    session.output.print_message("The broker has every exchange and queue of the topology.")
    return ExitCode.DONE


@command(app, "definitions")
async def print_definitions(session: Session, options: DefinitionsOptions) -> ExitCode:
    """Print a definitions file for RabbitMQ with the topology, the users and their permissions."""
    installation = parse(InstallationOptions, _installation(options))
    definitions = definitions_file(installation, secrets.token_bytes)
    _name_settings(session, installation)
    typer.echo(orjson.dumps(definitions, option=orjson.OPT_INDENT_2).decode())
    return ExitCode.DONE


@command(app, "manifests")
async def print_manifests(session: Session, options: ManifestsOptions) -> ExitCode:
    """Print the topology as objects of RabbitMQ's operators for Kubernetes (YAML or JSON)."""
    more = {
        "cluster": options.cluster,
        "namespace": options.namespace,
        "has_cluster": options.has_cluster,
    }
    installation = parse(ManifestOptions, _installation(options) | more)
    objects = operator_manifests(installation, secrets.token_bytes)
    _name_settings(session, installation)
    if session.options.output is Format.JSON:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        typer.echo(orjson.dumps(items, option=orjson.OPT_INDENT_2).decode())
    else:
        is_unicode = not sys.stdout.isatty()  # a virtual host may have any characters
        typer.echo(
            yaml.safe_dump_all(
                objects, explicit_start=True, sort_keys=False, allow_unicode=is_unicode
            ),
            nl=False,
        )
    return ExitCode.DONE


def _installation(options: DefinitionsOptions) -> dict[str, Any]:
    """Return the options as fields of `InstallationOptions`, with the passwords of the file."""
    passwords = (
        {} if options.passwords is None else decode(options.passwords.read(MAX_PASSWORD_FILE_SIZE))
    )
    return {
        "vhost": options.vhost,
        "pools": options.pools or (),
        "tenants": options.tenants or (),
        "operators": options.operators or (),
        "delayed_exchanges": _delayed(options.delayed_exchanges),
        **_of_document(options),
        "passwords": passwords,
    }


def _delayed(options: Sequence[str] | None) -> dict[str, str]:
    """Return the type of the due exchange of each exchange. Raise `InvalidInput` for a repeat."""
    types: dict[str, str] = {}
    for option in options or ():
        name, _, kind = option.partition("=")
        if name in types:
            reason = f"The exchange {name!r} must have one type, so name the exchange once."
            raise InvalidInput(reason, field="delayed_exchanges", code="invalid_exchange")
        types[name] = kind or ExchangeKind.TOPIC
    return types


def _name_settings(session: Session, installation: InstallationOptions) -> None:
    """Name the settings of the services, which must name the tenants and the operators too."""
    if installation.tenants:
        session.output.print_message(
            "The services find the queues of the tenants that HAREBELL_TENANTS_FILE or "
            f"HAREBELL_TENANTS={','.join(installation.tenants)} names. A client of a tenant has "
            f"the setting HAREBELL_EXCHANGE={tenant_exchange(installation.tenants[0])}."
        )
    if installation.operators:
        logins = [operator_user(name).name for name in installation.operators]
        session.output.print_message(
            f"The services accept these people with HAREBELL_OPERATORS={','.join(logins)}."
        )


def _of_document(options: DefinitionsOptions) -> dict[str, Any]:
    """Return what the document says about each tenant of the options.

    Raise `InvalidInput` for a bad document.
    """
    if options.tenants_file is None:
        return {}
    policies = parse_policies(options.tenants_file.read(MAX_FILE_SIZE + 1))
    tenants = options.tenants or ()
    return {
        "queued_bytes": {each: policies.of(each).quotas.queued_bytes for each in tenants},
        "declaring": [each for each in tenants if policies.of(each).declares],
        "tenant_queues": {each: policies.of(each).queues for each in tenants},
    }


async def _find_problems(url: str, installation: InstallationOptions) -> list[str]:
    tenants = installation.tenants
    topology = SYSTEM
    for tenant in tenants:
        topology += tenant_topology(tenant)
    topology += delayed_topology(installation.delayed_exchanges)
    properties = {"service": CLIENT_NAME, "version": __version__}
    name = f"{CLIENT_NAME}@{socket.gethostname()}"
    connection = await connect(url, name=name, properties=properties)
    async with connection:
        problems = await declare.find_differences(connection, topology)
        queues = [each.name for tenant in tenants for each in consumed_queues(tenant)]
        missing = await declare.find_unconsumed(connection, queues)
        delayed = [
            each.name
            for exchange in installation.delayed_exchanges
            for each in (delayed_queue(exchange), undelivered_queue_of_delayed(exchange))
        ]
        waiting = await declare.find_unconsumed(connection, delayed)
    problems += [f"{queue}: {NO_INTAKE}" for queue in missing]
    return problems + [f"{queue}: {NO_DELAYED_INTAKE}" for queue in waiting]
