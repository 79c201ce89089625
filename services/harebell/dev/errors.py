"""Everything the local stack can refuse or fail at; the text is for the person at the terminal.

* StackError
  - NotInstalled      a server's program is not on this machine
  - NoFreePort        every port of our range is taken
  - StartFailed       a process ended, or did not get ready in time; has the end of its log
  - NotReady          services that do not answer 200 on /readyz; has the ends of their logs
  - StateUnreadable   a file under the stack's directory is not what we wrote
"""

from collections.abc import Mapping
from pathlib import Path


class StackError(Exception):
    """The root; never raised itself."""


class NotInstalled(StackError):
    def __init__(self, package: str, setting: str) -> None:
        super().__init__(
            f"{package} is not installed: apt-get install {package}, or set {setting} "
            "to a server that is there"
        )
        self.package = package


class NoFreePort(StackError):
    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"no free port between {first} and {last} on loopback")


class StartFailed(StackError):
    def __init__(self, name: str, reason: str, log: str) -> None:
        ending = f"; its log ends:\n{log}" if log else "; its log is empty"
        super().__init__(f"{name} {reason}{ending}")
        self.name = name


class NotReady(StackError):
    def __init__(self, logs: Mapping[str, str]) -> None:
        endings = "".join(f"\n--- {name}, its log ends:\n{log}" for name, log in logs.items())
        super().__init__(f"not ready: {', '.join(logs)}{endings}")
        self.names = list(logs)


class StateUnreadable(StackError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason}); delete it and start again")
        self.path = path
