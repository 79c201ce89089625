"""Failpoints: named steps at which a test can kill, stop, delay or break a service.

`HAREBELL_FAILPOINT=ticker.before_commit:kill` arms one, to kill, stop, term, raise or
sleep=<seconds>. Unless it is armed, a failpoint has no effect.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Final

from harebell.contract.errors import InvalidInput, Transient

ACTIONS: Final = ("kill", "stop", "term", "raise", "sleep")
_SETTING: Final = "HAREBELL_FAILPOINT"


class InjectedFailure(Transient):
    """The error of an armed failpoint, which its caller treats as a transient failure."""

    code = "injected"


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One armed failpoint. `seconds` is the duration of the action sleep."""

    name: str
    action: str
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Failpoint":
        """Return the failpoint of a setting. Raise `InvalidInput` for a bad form or action."""
        name, _, action = text.partition(":")
        action, _, seconds = action.partition("=")
        if not name or action not in ACTIONS:
            reason = f"A failpoint must have a form like ticker.before_commit:kill, not {text!r}."
            raise InvalidInput(reason, field=_SETTING)
        try:
            return cls(name, action, float(seconds or 0))
        except ValueError:
            reason = f"The action sleep must have a number of seconds, not {seconds!r}."
            raise InvalidInput(reason, field=_SETTING) from None


_armed: Failpoint | None = None


def arm(failpoint: Failpoint | None) -> None:
    """Arm a failpoint for this process, or disarm all with None."""
    global _armed  # noqa: PLW0603  # one per process, set once at start
    _armed = failpoint


async def reach(name: str) -> None:
    """Execute the action of the failpoint if it is armed."""
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
            reason = f"The failpoint {name} is armed with the action raise."
            raise InjectedFailure(reason)
        case _:
            await asyncio.sleep(_armed.seconds)
