"""Circuit breakers: commands, facts, and what services tell each other of them.

Whom a target calls is often the target of many tenants, so a breaker is no tenant's: commands and
questions go, and facts come, under the name `names.OPERATIONS` in a tenant's place.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from harebell.contract.command_base import CommandBase
from harebell.contract.downstream import MAX_DOWNSTREAM, is_downstream_name
from harebell.contract.message import Message, empty_default, invalid
from harebell.contract.types import Instant, ShortText, check_text

MAX_SNAPSHOT_BREAKERS: Final = (
    1_000  # breakers that are not closed, or are forced, of which is told
)


class BreakerState(StrEnum):
    """Closed: runs pass. Open: they are held back. Half open: a few pass, to probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def _check_downstream(value: object) -> object:
    if isinstance(value, str) and not is_downstream_name(check_text(value)):
        reason = "is written http:acme.example, http:acme.example:8443, amqp:acme.jobs, task:a.b"
        raise invalid("invalid_downstream", reason)
    return value


DownstreamName = Annotated[
    str, BeforeValidator(_check_downstream), Field(max_length=MAX_DOWNSTREAM)
]


class BreakerCommand(CommandBase):
    """To the breaker of one downstream, whether anything was ever sent there or not."""

    downstream: DownstreamName
    note: ShortText | None = None


class BreakerOpen(BreakerCommand):
    """Hold back its runs, for good or until `until`, whatever comes of attempts."""

    until: Instant | None = None


class BreakerClose(BreakerCommand):
    """Let its runs pass, for good or until `until`, whatever comes of attempts."""

    until: Instant | None = None


class BreakerReset(BreakerCommand):
    """Let what comes of attempts decide again."""


BREAKER_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "breaker.open": BreakerOpen,
    "breaker.close": BreakerClose,
    "breaker.reset": BreakerReset,
}


class BreakerResponse(Message):
    """`status`: forced_open, forced_closed, automatic; unchanged, where a later order was first."""

    ok: Literal[True] = True
    downstream: str
    status: str
    until: Instant | None = None


class BreakerEventData(Message):
    """`data` of breaker.opened, half_opened, closed. `failed` of `attempts`: as it last opened."""

    downstream: str
    state: BreakerState
    since: Instant
    failed: int = 0
    attempts: int = 0


class BreakerForcedEventData(Message):
    """`data` of breaker.forced and breaker.released. `forced`: open or closed."""

    downstream: str
    forced: BreakerState | None = None
    since: Instant
    until: Instant | None = None
    note: str | None = None
    actor: str | None = None


class BreakerSnapshotEntry(Message):
    """As it is stored: what dispatchers found (`since`), and what it is forced to be, if it is."""

    downstream: str
    state: BreakerState = BreakerState.CLOSED
    since: Instant | None = None
    failed: int = 0
    attempts: int = 0
    forced: BreakerState | None = None
    forced_until: Instant | None = None


class BreakerSnapshot(Message):
    """To every dispatcher: all breakers that are not simply closed, as of then."""

    as_of: Instant
    breakers: list[BreakerSnapshotEntry] = empty_default(list)


class BreakerSnapshotRequest(Message):
    """To the tickers, of a dispatcher that has begun to listen: tell how breakers stand."""

    dispatcher: str
