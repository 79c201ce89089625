"""Named steps at which a test may kill, stop, delay or break a service; inert unless armed.

`HAREBELL_FAILPOINT=ticker.before_commit:kill` - actions: kill, stop, term, raise, sleep=<seconds>.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Final

from harebell.contract.errors import InvalidInput, Transient

ACTIONS: Final = ("kill", "stop", "term", "raise", "sleep")


class InjectedFailure(Transient):
    """Raised by an armed failpoint; whoever meets it treats it as any passing fault."""

    code = "injected"


@dataclass(frozen=True, slots=True)
class Failpoint:
    name: str
    action: str
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Failpoint":
        name, _, action = text.partition(":")
        action, _, seconds = action.partition("=")
        if not name or action not in ACTIONS:
            raise InvalidInput("must be like ticker.before_commit:kill", field="HAREBELL_FAILPOINT")
        try:
            return cls(name, action, float(seconds or 0))
        except ValueError:
            reason = f"{seconds!r} is not a number of seconds"
            raise InvalidInput(reason, field="HAREBELL_FAILPOINT") from None


_armed: Failpoint | None = None


def arm(failpoint: Failpoint | None) -> None:
    global _armed  # noqa: PLW0603  # one per process, set once at start
    _armed = failpoint


async def reach(name: str) -> None:
    """Say that a named step is reached."""
    if _armed is None or _armed.name != name:
        return
    match _armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
        case "raise":
            raise InjectedFailure(name)
        case _:
            await asyncio.sleep(_armed.seconds)
