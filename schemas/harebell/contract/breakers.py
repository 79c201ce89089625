"""Circuit breakers: commands, events, and snapshots between services.

Each breaker belongs to one tenant and one downstream, because a tenant chooses its own failing
calls. One more, of all tenants, opens by force, or when the breakers of several tenants are open.
Only operators may send commands, and its events have the tenant `OPERATIONS_TENANT`.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from harebell.contract.command_base import CommandBase
from harebell.contract.downstream import MAX_DOWNSTREAM, is_downstream_name
from harebell.contract.message import Message, empty_default, invalid, quoted
from harebell.contract.types import Instant, ShortText, Tenant, check_text

MAX_SNAPSHOT_BREAKERS: Final = 1_000  # breakers in one list


class BreakerState(StrEnum):
    """The states of a breaker. Closed: tickets pass. Open: none passes. Half open: a few pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerReason(StrEnum):
    """The reasons for which a breaker opened."""

    FAILURE_RATIO = "failure_ratio"  # too many of the attempts within the window failed
    CONSECUTIVE_FAILURES = "consecutive_failures"  # with fewer attempts than the ratio requires
    PROBE_FAILED = "probe_failed"  # the breaker was half open
    SEVERAL_TENANTS = "several_tenants"  # the breakers of several tenants are open


def _check_downstream(value: object) -> object:
    if isinstance(value, str) and not is_downstream_name(check_text(value)):
        forms = "acme.example:443, amqp:acme.jobs or task:acme.report"
        reason = f"The downstream must have a form such as {forms}, not {quoted(value)}."
        raise invalid("invalid_downstream", reason)
    return value


DownstreamName = Annotated[
    str, BeforeValidator(_check_downstream), Field(max_length=MAX_DOWNSTREAM)
]


class BreakerCommand(CommandBase):
    """A command to the breaker of one downstream, whether Harebell knows the downstream or not.

    Without `for_tenant` the command concerns all tenants.
    """

    downstream: DownstreamName
    for_tenant: Tenant | None = None
    note: ShortText | None = None


class BreakerOpen(BreakerCommand):
    """A command that forces a breaker open, permanently or until a time."""

    until: Instant | None = None


class BreakerClose(BreakerCommand):
    """A command that forces a breaker closed, permanently or until a time."""

    until: Instant | None = None


class BreakerReset(BreakerCommand):
    """A command that ends a forced state, so that the outcomes of attempts decide again."""


BREAKER_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "breaker.open": BreakerOpen,
    "breaker.close": BreakerClose,
    "breaker.reset": BreakerReset,
}


class BreakerResponse(Message):
    """The result of a command to a breaker.

    `status` is forced_open, forced_closed or automatic. The status unchanged means that a later
    command was applied first.
    """

    ok: Literal[True] = True
    downstream: str
    tenant: str | None = None  # null: all tenants
    status: str
    until: Instant | None = None


class BreakerEventData(Message):
    """The data of `breaker.opened`, `breaker.half_opened` and `breaker.closed`.

    `failed` of `attempts` failed before the breaker last opened, for the given reason. The breaker
    of all tenants counts tenants instead, and its `tenant` is null.
    """

    downstream: str
    tenant: str | None = None
    state: BreakerState
    since: Instant
    failed: int = 0
    attempts: int = 0
    reason: str | None = None  # a `BreakerReason`
    next_probe_at: Instant | None = None  # the end of the open duration of an open breaker
    text: str | None = None  # the whole event as sentences, for a chat


class BreakerForcedEventData(Message):
    """The data of `breaker.forced` and `breaker.reset`. `forced` is open, closed or null."""

    downstream: str
    tenant: str | None = None  # null: all tenants
    forced: BreakerState | None = None
    since: Instant
    until: Instant | None = None
    note: str | None = None
    actor: str | None = None
    text: str | None = None  # the whole event as sentences, for a chat


class BreakerSnapshotEntry(Message):
    """One stored breaker: the state that dispatchers found, and the state that a person forced."""

    downstream: str
    tenant: str | None = None  # null: all tenants
    state: BreakerState = BreakerState.CLOSED
    since: Instant | None = None
    failed: int = 0
    attempts: int = 0
    forced: BreakerState | None = None
    forced_until: Instant | None = None


class BreakerSnapshot(Message):
    """The message to every dispatcher with all breakers that are forced or not closed.

    `breakers` hold all tenants, and `tenant_breakers` hold one tenant each. An older dispatcher
    ignores the second list.
    """

    as_of: Instant
    breakers: list[BreakerSnapshotEntry] = empty_default(list)
    tenant_breakers: list[BreakerSnapshotEntry] = empty_default(list)


class BreakerSnapshotRequest(Message):
    """The request of a started dispatcher to the tickers for a snapshot."""

    dispatcher: str
