"""The errors of the local stack, as a tree. Each text is for the user of the terminal.

* StackError
  - NotInstalled      the program of a server is missing
  - NoFreePort        every port of the range is in use
  - StartFailed       a process ended or was not ready in time; contains the end of its log
  - NotReady          services do not respond with 200 on /readyz; contains the ends of their logs
  - StateUnreadable   a file of the stack is damaged
"""

from collections.abc import Mapping
from pathlib import Path


class StackError(Exception):
    """The root of the tree, which no code raises."""


class NotInstalled(StackError):
    """A server program that is missing on this machine."""

    def __init__(self, package: str, setting: str) -> None:
        super().__init__(
            f"The package {package} must be installed (apt-get install {package}), "
            f"or {setting} must name an existing server."
        )
        self.package = package


class NoFreePort(StackError):
    """A port range in which every port is in use."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"No loopback port from {first} to {last} is free.")


class StartFailed(StackError):
    """A process that ended, or that was not ready in time."""

    def __init__(self, name: str, reason: str, log: str) -> None:
        ending = f" The log ends with:\n{log}" if log else " The log is empty."
        super().__init__(f"{name}: {reason}{ending}")
        self.name = name


class NotReady(StackError):
    """Services that do not respond with 200 on /readyz."""

    def __init__(self, logs: Mapping[str, str]) -> None:
        endings = "".join(
            f"\n--- The log of {name} ends with:\n{log}" for name, log in logs.items()
        )
        super().__init__(
            f"The services must be ready, but these are not: {', '.join(logs)}.{endings}"
        )
        self.names = list(logs)


class StateUnreadable(StackError):
    """A damaged file of the stack."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"The file {path} is damaged ({reason}). Delete it and start again.")
        self.path = path
