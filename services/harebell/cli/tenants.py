"""`harebell tenants`: the document of tenant policies, and the use of the quotas of tenants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from yarl import URL

from harebell.cli.doctor.management import ManagementApi, parse_management_url, virtual_host
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Format
from harebell.cli.framework.session import Session
from harebell.connection.amqp import parse_amqp_urls
from harebell.contract.errors import InvalidInput
from harebell.contract.views import TenantUsageView
from harebell.domain.tenant_policy import TenantPolicies, size_text
from harebell.messaging.topology.bus import tenant_intake_queue
from harebell.runtime.policy_file import MAX_FILE_SIZE, parse_policies

app = typer.Typer()

OTHERS: Final = "(others)"  # the tenants that the document omits
COLUMNS: Final = (
    "tenant",
    "logins",
    "exchanges",
    "reply_queues",
    "pools",
    "tasks",
    "hosts",
    "ports",
    "networks",
    "priority_max",
)
USAGE_COLUMNS: Final = ("tenant", "rule", "limit", "used", "refused")
QUEUED_BYTES: Final = "queued_bytes"
SIZES: Final = frozenset({QUEUED_BYTES})  # quotas in bytes
_OWN_NAMES: Final = ("exchanges", "reply_queues")  # besides those that begin with the tenant
_LISTS: Final = ("ports", "networks")  # whose items the table shows as texts


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The options of `tenants check`."""

    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="Check this document (YAML or JSON, - for stdin)."),
    ]
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Print only the policy of this tenant."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOptions:
    """The options of `tenants usage`."""

    all_tenants: Annotated[
        bool,
        typer.Option("--all", help="List all tenants, which needs a login of an operator."),
    ] = False
    management_url: Annotated[
        str | None,
        typer.Option(
            "--management-url",
            metavar="URL",
            envvar="HAREBELL_MANAGEMENT_URL",
            help="Read the use of queued_bytes from the management API of RabbitMQ at this URL "
            "(default login: that of the AMQP URL, which needs the tag monitoring).",
        ),
    ] = None


@command(app, "check", global_options=("output",))
def check(session: Session, options: CheckOptions) -> ExitCode:
    """Check a document of tenant policies, and print what each tenant may use."""
    try:
        policies = parse_policies(options.file.read(MAX_FILE_SIZE + 1))
    except InvalidInput as error:
        session.output.print_message(f"{options.file.name}: {error.reason} ({error.code})")
        return ExitCode.FAILED
    if options.tenant is not None:
        session.output.print_record(_row(options.tenant, policies))
        return ExitCode.DONE
    rows = [_row(tenant, policies) for tenant in (*sorted(policies.tenants), OTHERS)]
    session.output.print_rows(rows, COLUMNS)
    session.output.print_message(f"The document is valid (tenants: {len(policies.tenants)}).")
    return ExitCode.DONE


@command(app, "usage")
async def usage(session: Session, options: UsageOptions) -> ExitCode:
    """List the quotas of the tenant, their use, and what was refused within the last hour."""
    async with session.connect() as client:
        views = [each async for each in client.tenant_usage(all_tenants=options.all_tenants)]
    if options.management_url:
        amqp_url = parse_amqp_urls(session.amqp_url)[0]
        url = parse_management_url(options.management_url, amqp_url)
        sizes = await _queued_bytes(url, virtual_host(amqp_url))
        views = [_with_queued_bytes(each, sizes) for each in views]
    if session.options.output is Format.JSON:
        session.output.print_rows(views, USAGE_COLUMNS)
    else:
        session.output.print_rows([row for each in views for row in _lines(each)], USAGE_COLUMNS)
    return exit_code_of_many(done=len(views))


async def _queued_bytes(url: URL, vhost: str) -> Mapping[str, int]:
    """Return the bytes of the bodies in each queue of the virtual host, by name.

    Raise `NotAllowed` or `BrokerUnavailable`.
    """
    async with ManagementApi.open(url) as api:
        queues = await api.get("queues", vhost, columns="name,message_bytes")
    return {each["name"]: each["message_bytes"] for each in queues if "message_bytes" in each}


def _with_queued_bytes(usage: TenantUsageView, sizes: Mapping[str, int]) -> TenantUsageView:
    """Return the use with the bytes of the intake queue. A tenant without a queue has none."""
    queued = sizes.get(tenant_intake_queue(usage.tenant).name)
    quotas = [
        each.model_copy(update={"used": queued}) if each.quota == QUEUED_BYTES else each
        for each in usage.quotas
    ]
    return usage.model_copy(update={"quotas": quotas})


def _lines(usage: TenantUsageView) -> Iterator[Mapping[str, Any]]:
    """Return one line for each quota, and one for each other refusal."""
    for each in usage.quotas:
        is_size = each.quota in SIZES and each.limit is not None
        yield {
            "tenant": usage.tenant,
            "rule": each.quota,
            "limit": size_text(int(each.limit or 0)) if is_size else _number(each.limit),
            "used": f"{_number(each.used)} or more" if each.is_at_least else _number(each.used),
            "refused": each.refused,
        }
    for refusal in usage.refusals:
        yield {"tenant": usage.tenant, "rule": refusal.rule, "refused": refusal.refused}


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.10g}"


def _row(tenant: str, policies: TenantPolicies) -> Mapping[str, Any]:
    """Return the effective policy of a tenant, with its own exchanges and its default login."""
    policy = policies.of(tenant).model_dump(mode="json")
    is_tenant = tenant != OTHERS
    own = f"{tenant}.*" if is_tenant else "<tenant>.*"
    logins = sorted(policies.logins(tenant)) if is_tenant else ["<tenant>"]
    lists = {name: [str(each) for each in policy[name]] for name in _LISTS}
    own_names = {name: [own, *policy[name]] for name in _OWN_NAMES}
    return {"tenant": tenant} | policy | lists | own_names | {"logins": logins}
