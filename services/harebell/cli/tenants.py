"""`harebell tenants`: the document of tenant policies, checked without a broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput
from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime.policy_file import MAX_FILE_SIZE, parse_policies

app = typer.Typer()

OTHERS: Final = "(others)"  # the tenants that the document omits
COLUMNS: Final = (
    "tenant",
    "logins",
    "exchanges",
    "pools",
    "tasks",
    "hosts",
    "ports",
    "networks",
    "priority_max",
)
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


def _row(tenant: str, policies: TenantPolicies) -> Mapping[str, Any]:
    """Return the effective policy of a tenant, with its own exchanges and its default login."""
    policy = policies.of(tenant).model_dump(mode="json")
    is_tenant = tenant != OTHERS
    own = f"{tenant}.*" if is_tenant else "<tenant>.*"
    logins = sorted(policies.logins(tenant)) if is_tenant else ["<tenant>"]
    lists = {name: [str(each) for each in policy[name]] for name in _LISTS}
    exchanges = [own, *policy["exchanges"]]
    return {"tenant": tenant} | policy | lists | {"logins": logins, "exchanges": exchanges}
