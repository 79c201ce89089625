"""The rules of the tenant policy for pools, priorities, targets and the secrets in targets.

Intake applies the rules to definitions. The executor applies those for targets again to each
attempt.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

import orjson
from pydantic import TypeAdapter, ValidationError
from yarl import URL

from harebell.contract.errors import InvalidInput, NotAllowed
from harebell.contract.message import quoted, to_invalid_input
from harebell.contract.redaction import REDACTED, literals_of, refuse_redacted
from harebell.contract.secret import SecretRef, references_in
from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget
from harebell.domain.tenant_policy import TenantPolicy
from harebell.domain.url_policy import (
    Address,
    Egress,
    Network,
    check_url,
    host_of,
    is_in_networks,
    is_public,
    literal_address,
)
from harebell.domain.validation import naming_field

TARGET: Final = "target"

_REFERENCE_START: Final = b'{"secret":'  # of each reference in compact JSON
_REFERENCE: Final = TypeAdapter(SecretRef)


def check_pool(pool: str, policy: TenantPolicy, field: str = "pool") -> None:
    """Raise `NotAllowed` for a pool that the tenant may not use."""
    if not policy.has_pool(pool):
        reason = f"The tenant policy must permit the pool, but it does not permit {quoted(pool)}."
        raise NotAllowed(reason, field=field, rule="pools")


def check_priority(priority: int, policy: TenantPolicy, field: str = "priority") -> None:
    """Raise `NotAllowed` for a priority above that of the policy."""
    if priority > policy.priority_max:
        reason = (
            f"The priority must be at most {policy.priority_max} by the tenant policy, "
            f"not {priority}."
        )
        raise NotAllowed(reason, field=field, rule="priority_max")


def check_call(target: Target, tenant: str, policy: TenantPolicy, *, field: str = TARGET) -> None:
    """Raise `NotAllowed` for an exchange, a reply queue or a task that the tenant may not use."""
    if isinstance(target, AmqpTarget) and not policy.may_publish(tenant, target.amqp.exchange):
        reason = (
            f"The exchange must begin with {tenant}. or be in the tenant policy, "
            f"not {quoted(target.amqp.exchange)}."
        )
        raise NotAllowed(reason, field=f"{field}.amqp.exchange", rule="exchanges")
    if isinstance(target, AmqpTarget):
        _check_reply_to(target.amqp.reply_to, tenant, policy, field=f"{field}.amqp.reply_to")
    if isinstance(target, TaskTarget) and not policy.has_task(target.task.name):
        reason = (
            "The tenant policy must permit the task, but it does not permit "
            f"{quoted(target.task.name)}."
        )
        raise NotAllowed(reason, field=f"{field}.task.name", rule="tasks")


def _check_reply_to(queue: str | None, tenant: str, policy: TenantPolicy, *, field: str) -> None:
    """Refuse a foreign queue, to which the consumer would publish with its own rights."""
    if queue is None or policy.may_receive_replies(tenant, queue):
        return
    reason = f"The queue must begin with {tenant}. or be in the tenant policy, not {quoted(queue)}."
    raise NotAllowed(reason, field=field, rule="reply_queues")


def check_target(
    target: Target, tenant: str, policy: TenantPolicy, *, egress: Egress, field: str = TARGET
) -> None:
    """Raise `NotAllowed` or `PrivateAddress` for a target that the tenant may not use."""
    check_call(target, tenant, policy, field=field)
    if isinstance(target, HttpTarget):
        with naming_field(f"{field}.http.url"):
            check_request_url(target.http.url, policy, egress)


def check_request_url(url: str | URL, policy: TenantPolicy, egress: Egress) -> None:
    """Check the host, the port and the literal address of a URL.

    The port of a name counts only if the tenant may use no private network, because its address is
    not known yet. Raise `NotAllowed`, `PrivateAddress`, or `InvalidInput` for a bad URL.
    """
    check_url(url, egress.allowed, egress.denied)
    if not policy.restricts_http:
        return
    host, port = _host_and_port(url)
    if not policy.has_host(host):
        reason = f"The tenant policy must permit the host, but it does not permit {quoted(host)}."
        raise NotAllowed(reason, field="url", rule="hosts")
    address = literal_address(url)
    if address is not None:
        check_address(address, port, policy, egress=egress)
    elif not _private_networks(policy, egress):
        _check_port(port, policy)


def check_address(address: Address, port: int, policy: TenantPolicy, *, egress: Egress) -> None:
    """Check an address of an HTTP target, in addition to the networks of the installation.

    Raise `NotAllowed` without the address, because a schedule could read the internal DNS.
    """
    if is_in_networks(address, _private_networks(policy, egress)):
        listed = policy.allowed_networks
        if listed is None or is_in_networks(address, listed):
            return
    if not is_public(address):
        reason = "The address must be in a network of the tenant policy, and it is in none."
        raise NotAllowed(reason, field="url", rule="networks")
    _check_port(port, policy)


def _host_and_port(url: str | URL) -> tuple[str, int]:
    host = host_of(url)
    try:
        return host, URL(url).port or 0
    except ValueError as error:
        reason = f"The URL must be valid: {error}."
        raise InvalidInput(reason, field="url", code="invalid_url") from None


def _private_networks(policy: TenantPolicy, egress: Egress) -> Sequence[Network]:
    """Return the private networks of the installation, or none for a tenant without networks."""
    return () if policy.allowed_networks == () else egress.allowed


def _check_port(port: int, policy: TenantPolicy) -> None:
    if not policy.has_port(port):
        ports = ", ".join(map(str, policy.ports)) or "none"
        reason = f"The port of a public address must be in the tenant policy ({ports}), not {port}."
        raise NotAllowed(reason, field="url", rule="ports")


def literal_fields(target: Target) -> list[str]:
    """Return the fields of the target that contain literal secrets."""
    return list(literals_of(_as_json(target))) if _may_contain_literals(target) else []


def check_secrets(target: Target, field: str, *, allows_literals: bool = True) -> None:
    """Raise `Rejected` for `***`, an invalid reference or a literal that the policy refuses."""
    if isinstance(target, TaskTarget):
        check_references(target.task.args, f"{field}.task.args")
    elif _may_contain_literals(target):
        check_literals(_as_json(target), field, allows_literals=allows_literals)


def check_literals(target: Any, field: str, *, allows_literals: bool) -> None:  # noqa: ANN401  # JSON
    """Raise `Rejected` for `***`, or for a literal secret that the policy refuses.

    The target may be a part of one, as in a patch.
    """
    refuse_redacted(target, field)
    if not allows_literals:
        _refuse(list(literals_of(target)), field)


def check_edited_secrets(target: Target, *, allows: bool) -> None:
    """Raise `Rejected` like `check_secrets`, but accept `***`, which keeps a stored secret."""
    if isinstance(target, TaskTarget):
        check_references(target.task.args, "target.task.args")
    elif not allows and _may_contain_literals(target):
        literals = literals_of(_as_json(target))
        _refuse([field for field in literals if literals[field] != REDACTED], "target")


def _refuse(fields: Sequence[str], within: str) -> None:
    if fields:
        reason = "The policy of the tenant requires a reference here instead of a literal secret."
        raise NotAllowed(reason, field=f"{within}.{fields[0]}", rule="literal_secrets")


def check_references(args: dict[str, Any], field: str) -> None:
    """Raise `InvalidInput` for an object with the only field `secret` that names no secret."""
    if _REFERENCE_START not in orjson.dumps(args):
        return
    for path, value in references_in(args, field):
        try:
            _REFERENCE.validate_python(value)
        except ValidationError as error:
            invalid = to_invalid_input(error.errors(include_url=False)[0])
            reason = "The field secret must be the name of a secret."
            raise InvalidInput(reason, field=path, code=invalid.code) from None


def literal_warnings(target: Target) -> list[str] | None:
    """Return a sentence for each literal secret, or None without one."""
    return [
        f"The field target.{field} contains a literal secret. A reference is safer."
        for field in literal_fields(target)
    ] or None


def _may_contain_literals(target: Target) -> bool:
    match target:
        case HttpTarget(http=call):
            return bool(call.headers) or call.userinfo is not None or "@" in call.url
        case AmqpTarget(amqp=message):
            return bool(message.headers)
        case TaskTarget():
            return False
        case _:
            assert_never(target)


def _as_json(target: Target) -> dict[str, Any]:
    return target.model_dump(mode="json", by_alias=True, exclude_none=True)
