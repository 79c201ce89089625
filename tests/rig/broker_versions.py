"""Which RabbitMQ a private broker is: the installed one, or another release in a Debian tree."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harebell.dev.errors import NotInstalled

INSTALLED: Final = Path("/")
SUITES: Final = {"4.0": "trixie", "4.3": "sid"}  # of Debian, that have these releases
LIBRARY: Final = "usr/lib/rabbitmq"
# Debian's inner script: the one on PATH switches to the system's own user and data.
SCRIPT: Final = f"{LIBRARY}/bin/rabbitmq-server"

# The mounts are seen by this process and its children alone, and are gone with them.
ENTER: Final = """\
set -e
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" "$3"
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """A RabbitMQ below `root`: the machine's own, or a tree that is entered by chroot."""

    root: Path

    @property
    def version(self) -> str | None:
        """None when there is none."""
        found = sorted(self.root.glob(f"{LIBRARY}/lib/rabbitmq_server-*"))
        return found[-1].name.partition("-")[2] if found else None

    def command(self, directory: Path) -> list[str]:
        """Becomes the node; it finds `directory` under the same name inside and outside."""
        script = f"/{SCRIPT}"
        if self.root == INSTALLED:
            return [script if Path(script).exists() else shutil.which("rabbitmq-server") or script]
        return [
            *("unshare", "--mount", "sh", "-c", ENTER),
            *("enter", str(self.root), str(directory), script),
        ]


def installation(release: str | None, environ: Mapping[str, str]) -> Installation:
    """The installed one, if it is of that release or none is asked for; else the tree of it.

    Raises `NotInstalled`.
    """
    installed = Installation(INSTALLED)
    if release is None or _is(installed, release):
        if installed.version is None and shutil.which("rabbitmq-server") is None:
            raise NotInstalled("rabbitmq-server", "HAREBELL_AMQP_URL")
        return installed
    other = Installation(tree_of(release, environ))
    if not _is(other, release):
        raise NotInstalled(f"rabbitmq-server {release}", "HAREBELL_AMQP_URL")
    return other


def tree_of(release: str, environ: Mapping[str, str]) -> Path:
    """Where the tree of a release is kept, built or not: in the user's cache."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    return Path(cache) / "harebell" / f"rabbitmq-{release}"


def _is(found: Installation, release: str) -> bool:
    return found.version is not None and f"{found.version}.".startswith(f"{release}.")


def main() -> None:
    """Print the suite and the place of a tree that BROKER needs; nothing when it needs none."""
    release = os.environ.get("BROKER")
    if not release or _is(Installation(INSTALLED), release):
        return
    if release not in SUITES:
        known = ", ".join(SUITES)
        raise SystemExit(f"harebell: BROKER={release}: known are {known} and what is installed")
    print(SUITES[release], tree_of(release, os.environ))  # noqa: T201  # read by the Makefile


if __name__ == "__main__":
    main()
