"""The facilities of the process: the clock, and the function that connects to the broker."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from harebell.cli.framework.options import GlobalOptions

if TYPE_CHECKING:  # the help needs no client, and its import takes long
    from harebell.client import Client


class Connect(Protocol):
    """The function that connects to the broker and returns a client."""

    def __call__(
        self, url: str, *, tenant: str, exchange: str | None, timeout: float, name: str
    ) -> "AbstractAsyncContextManager[Client]": ...


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """The facilities of the process, and the global options before the name of the command.

    Without `connect`, a session uses `Client.connect`.
    """

    now: Callable[[], datetime]
    connect: Connect | None = None
    options: GlobalOptions = field(default_factory=GlobalOptions)
