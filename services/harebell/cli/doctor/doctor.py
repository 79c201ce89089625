"""`harebell doctor`: checks of the broker, the database and the services, in plain words."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Final

import typer
from yarl import URL

from harebell.cli.arguments.values import duration
from harebell.cli.doctor import broker, database, links
from harebell.cli.doctor.checks import Check, DoctorResult, failed, passed, run_check, skipped
from harebell.cli.doctor.management import ManagementApi, parse_management_url, virtual_host
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.options import Format
from harebell.cli.framework.output import Output
from harebell.cli.framework.session import Session
from harebell.connection.amqp import close, parse_amqp_urls
from harebell.contract import __version__
from harebell.contract.errors import HarebellError, InvalidInput
from harebell.contract.message import parse
from harebell.messaging.topology.definitions_file import InstallationOptions, can_have_login
from harebell.messaging.topology.permissions import service_users
from harebell.runtime.database_url import DatabaseUrl, read_database_url
from harebell.runtime.policy_file import MAX_FILE_SIZE, parse_policies
from harebell.runtime.settings import PoolBounds

app = typer.Typer()

COLUMNS: Final = ("check", "result", "text")
REMEDY_COLUMNS: Final = ("check", "remedy")
MAX_TENANTS: Final = 500  # whose intake queues the broker is asked for
BROKER_LINK: Final = "broker link"
MANAGEMENT_LINK: Final = "management link"
DATABASE_LINK: Final = "database link"
TENANT_POLICY: Final = "tenant policy"
ADMINISTRATOR: Final = "administrator"
# The tags of a login of which one is needed, by check.
NEEDED_TAGS: Final[Mapping[str, frozenset[str]]] = {
    "alarms": frozenset({"monitoring", ADMINISTRATOR}),
    "plugins": frozenset({"monitoring", ADMINISTRATOR}),
    "policies": frozenset({"policymaker", "monitoring", ADMINISTRATOR}),
    "permissions": frozenset({ADMINISTRATOR}),
    "services": frozenset({"monitoring", ADMINISTRATOR}),
}
DATABASE_CHECKS: Final = (
    "database release",
    "database settings",
    "database connections",
    "migrations",
    "held snapshots",
    "time zone data",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of `doctor`."""

    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            envvar="HAREBELL_DATABASE_URL",
            help="Check this PostgreSQL database too, best as the role harebell_auditor.",
        ),
    ] = None
    management_url: Annotated[
        str | None,
        typer.Option(
            "--management-url",
            metavar="URL",
            envvar="HAREBELL_MANAGEMENT_URL",
            help="Ask the management API of RabbitMQ at this URL too (default login: that of the "
            "AMQP URL).",
        ),
    ] = None
    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--for-tenant",
            metavar="NAME",
            help="Check that an intake consumes the queue of this tenant (repeatable).",
        ),
    ] = None
    tenants_file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(
            "--tenants-file",
            metavar="FILE|-",
            help="Check this document of tenant policies, and the queues of its tenants.",
        ),
    ] = None
    pool_max: Annotated[
        int,
        typer.Option(
            "--pool-max",
            min=1,
            metavar="N",
            help="Compute with this HAREBELL_DATABASE_POOL_MAX of the services.",
        ),
    ] = PoolBounds.max_size
    snapshot_age: Annotated[
        str,
        typer.Option(
            "--snapshot-age",
            metavar="DURATION",
            help="Warn of a snapshot that is held for longer (such as 5m).",
        ),
    ] = "5m"
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON, as with -o json.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The bounds of the checks of the database that the options choose."""

    pool_max: int
    snapshot_age: timedelta


@command(app, "doctor")
async def doctor(session: Session, options: DoctorOptions) -> ExitCode:
    """Check the broker, the database and the services, and say how to mend each fault.

    The exit code is 1 after a failed check. A warning and a skipped check change no exit code.
    """
    nodes = parse_amqp_urls(session.amqp_url)
    tenants, declaring, of_policy = _tenants(options)
    installation = parse(
        InstallationOptions,
        {
            "vhost": virtual_host(nodes[0]),
            "tenants": list(filter(can_have_login, tenants)),
            "declaring": list(filter(can_have_login, declaring)),
        },
    )
    management = options.management_url and parse_management_url(options.management_url, nodes[0])
    address = options.database_url and read_database_url(options.database_url)
    bounds = _Bounds(
        pool_max=options.pool_max,
        snapshot_age=duration(options.snapshot_age, field="snapshot_age"),
    )
    groups = await asyncio.gather(
        _check_broker(session, nodes, tenants),
        _check_management(management or None, nodes[0], installation),
        _check_database(session, options, bounds, address=address or None),
    )
    checks = [*(each for group in groups[:2] for each in group), *of_policy, *groups[2]]
    _print(checks, Format.JSON if options.is_json else session.options.output)
    is_failed = any(each.result is DoctorResult.FAILED for each in checks)
    return ExitCode.FAILED if is_failed else ExitCode.DONE


def _print(checks: Sequence[Check], form: Format) -> None:
    """Print the checks, and in a table the remedies below them."""
    output = Output(form)
    rows = [
        {"check": each.check, "result": str(each.result), "text": each.text, "remedy": each.remedy}
        for each in checks
    ]
    output.print_rows(rows, COLUMNS)
    if form is Format.TABLE and (remedies := _remedies(checks)):
        typer.echo()
        output.print_rows(remedies, REMEDY_COLUMNS)


def _remedies(checks: Sequence[Check]) -> list[dict[str, str]]:
    """Return each remedy once, with the names of its checks."""
    names: dict[str, dict[str, None]] = {}
    for each in checks:
        if each.remedy is not None:
            names.setdefault(each.remedy, {})[each.check] = None
    return [{"check": ", ".join(found), "remedy": remedy} for remedy, found in names.items()]


def _tenants(options: DoctorOptions) -> tuple[list[str], list[str], list[Check]]:
    """Return the tenants of the options, those that may declare, and the verdict about the file."""
    named = list(options.tenants or ())
    if options.tenants_file is None:
        text = "The document of tenant policies is not checked."
        return named, [], [skipped(TENANT_POLICY, text, "Name it: --tenants-file tenants.yaml.")]
    try:
        policies = parse_policies(options.tenants_file.read(MAX_FILE_SIZE + 1))
    except InvalidInput as error:
        remedy = "Correct the document: harebell tenants check FILE."
        return named, [], [failed(TENANT_POLICY, error.reason, remedy)]
    tenants = list(dict.fromkeys([*named, *sorted(policies.tenants)]))
    text = f"The document is valid (tenants: {len(policies.tenants)})."
    checked = tenants[:MAX_TENANTS]
    declaring = [each for each in checked if policies.of(each).declares]
    return checked, declaring, [passed(TENANT_POLICY, text)]


async def _check_broker(
    session: Session, nodes: Sequence[URL], tenants: Sequence[str]
) -> list[Check]:
    found = await run_check(
        "broker certificate", links.check_broker_certificates(nodes, session.now())
    )
    try:
        connection = await links.open_broker(session.amqp_url)
    except HarebellError as error:
        skipped_checks = links.without_link(("broker release", "topology"), BROKER_LINK)
        return [*found, links.unreachable(BROKER_LINK, error), *skipped_checks]
    try:
        found.append(passed(BROKER_LINK, "The broker accepts the login."))
        if (release := links.release_of(connection)) is not None:
            found += broker.judge_release({release})
        found += await run_check("topology", links.check_topology(connection), limit=30)
        found += await run_check("intake", links.check_intake(connection, tenants), limit=30)
    finally:
        await close(connection)
    return found


async def _check_management(
    address: URL | None, node: URL, installation: InstallationOptions
) -> list[Check]:
    """Return the checks that only the management API can answer."""
    if address is None:
        text = "This check needs the management API of RabbitMQ."
        remedy = "Name it: --management-url URL, with a login that has the tag administrator."
        return [skipped(each, text, remedy) for each in NEEDED_TAGS]
    async with ManagementApi.open(address) as api:
        try:
            identity = await api.get("whoami")
        except HarebellError as error:
            remedy = "Check the URL and the login, and the plugin rabbitmq_management."
            link = failed(MANAGEMENT_LINK, error.reason, remedy)
            return [link, *links.without_link(tuple(NEEDED_TAGS), MANAGEMENT_LINK)]
        found = [passed(MANAGEMENT_LINK, f"The management API accepts {identity['name']}.")]
        tags = _tags(identity["tags"])
        needs_external = node.query.get("auth") == "external"
        loaders: Mapping[str, Callable[[], Awaitable[Iterable[Check]]]] = {
            "alarms": lambda: _alarms(api),
            "plugins": lambda: _plugins(api, needs_external=needs_external),
            "policies": lambda: _policies(api, installation),
            "permissions": lambda: _permissions(api, installation),
            "services": lambda: _services(api, installation.vhost),
        }
        for check, load in loaders.items():
            if tags & NEEDED_TAGS[check]:
                found += await run_check(check, load())
            else:
                needed = " or ".join(sorted(NEEDED_TAGS[check]))
                text = f"The login {identity['name']} may not read this of the management API."
                found.append(skipped(check, text, f"Use a login with the tag {needed}."))
    return found


def _tags(tags: str | Sequence[str]) -> set[str]:
    """Return the tags of a login, which older releases write as one text."""
    return set(tags.split(",") if isinstance(tags, str) else tags)


async def _alarms(api: ManagementApi) -> Iterable[Check]:
    return broker.judge_alarms(await api.get("nodes"))


async def _plugins(api: ManagementApi, *, needs_external: bool) -> Iterable[Check]:
    return broker.judge_plugins(await api.get("nodes"), needs_external=needs_external)


async def _policies(api: ManagementApi, installation: InstallationOptions) -> Iterable[Check]:
    found = await api.get("policies", installation.vhost)
    return broker.judge_policies(found, installation)


async def _permissions(api: ManagementApi, installation: InstallationOptions) -> Iterable[Check]:
    vhost = installation.vhost
    found = await api.get("vhosts", vhost, "permissions")
    topics = await api.get("vhosts", vhost, "topic-permissions")
    users = [*service_users(), *installation.tenant_users]
    return broker.judge_permissions(found, topics, users, vhost=vhost)


async def _services(api: ManagementApi, vhost: str) -> Iterable[Check]:
    connections = await api.connections()
    return broker.judge_services(connections, vhost=vhost, own_version=__version__)


async def _check_database(
    session: Session, options: DoctorOptions, bounds: _Bounds, *, address: DatabaseUrl | None
) -> list[Check]:
    if address is None or not options.database_url:
        text = "This check needs the database."
        remedy = "Name it: --database-url URL, with the role harebell_auditor."
        return [skipped(each, text, remedy) for each in ("clock", *DATABASE_CHECKS)]
    # The import is here, because only two commands may load the driver of the database.
    from harebell.audit import database_reader as reader  # noqa: PLC0415  # the reason is above

    found = links.database_weaknesses(address)
    is_encrypted = True
    async with AsyncExitStack() as opened:
        try:
            connection = await opened.enter_async_context(
                reader.connect_with_defaults(options.database_url)
            )
        except HarebellError as error:
            found.append(links.unreachable(DATABASE_LINK, error))
            found += links.without_link(("clock", *DATABASE_CHECKS), DATABASE_LINK)
        else:
            found.append(passed(DATABASE_LINK, "The database accepts the login."))
            found_clock, is_encrypted = await _check_clock(session, reader, connection)
            found += found_clock
            found += await _check_facts(reader, connection, bounds, today=session.now().date())
    for server in address.servers if is_encrypted else ():
        certificates = links.check_certificates(server, session.now())
        found += await run_check("database certificate", certificates)
    return found


async def _check_clock(
    session: Session,
    reader: Any,  # noqa: ANN401  # a module that only this command imports
    connection: Any,  # noqa: ANN401  # of the driver, which has no types
) -> tuple[list[Check], bool]:
    """Return the verdict about the clock, and whether the connection is encrypted."""
    is_encrypted = True

    async def check() -> list[Check]:
        nonlocal is_encrypted
        time, is_encrypted = await reader.load_time(connection)
        return [links.compare_clocks(session.now(), time)]

    return await run_check("clock", check()), is_encrypted


async def _check_facts(
    reader: Any,  # noqa: ANN401  # a module that only this command imports
    connection: Any,  # noqa: ANN401  # of the driver, which has no types
    bounds: _Bounds,
    *,
    today: date,
) -> list[Check]:
    async def release() -> Iterable[Check]:
        return database.judge_server(await reader.load_server(connection))

    async def settings() -> Iterable[Check]:
        return database.judge_settings(await reader.load_server(connection))

    async def sessions() -> Iterable[Check]:
        found = await reader.load_sessions(connection)
        return database.judge_sessions(found, pool_max=bounds.pool_max)

    async def migrations() -> Iterable[Check]:
        version = await reader.load_schema_version(connection)
        return database.judge_schema(version)

    async def snapshots() -> Iterable[Check]:
        found = await reader.load_old_snapshots(connection)
        return database.judge_snapshots(found, max_age=bounds.snapshot_age)

    async def time_zones() -> Iterable[Check]:
        version = await reader.load_tzdata_version(connection)
        return database.judge_tzdata(version, today)

    loaders = (release, settings, sessions, migrations, snapshots, time_zones)
    found: list[Check] = []
    for check, load in zip(DATABASE_CHECKS, loaders, strict=True):
        found += await run_check(check, load())
    return found
