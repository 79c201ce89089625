"""The RabbitMQ of a private broker: the installed version, or another version in a Debian tree."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from harebell.dev.errors import NotInstalled
from harebell.dev.rabbitmq import DEBIAN_SCRIPT, ServerCommand, installed_server

INSTALLED: Final = Path("/")
SUITES: Final = {"4.0": "trixie", "4.3": "sid"}  # Debian suites by RabbitMQ version
LIBRARY: Final = "usr/lib/rabbitmq"

# Only this process and its children see the mounts, which end with them.
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
    """A RabbitMQ below `root`: that of this machine, or that of a Debian tree."""

    root: Path

    @property
    def version(self) -> str | None:
        """The full version, or None without RabbitMQ."""
        found = sorted(self.root.glob(f"{LIBRARY}/lib/rabbitmq_server-*"))
        return found[-1].name.partition("-")[2] if found else None

    def has_version(self, version: str) -> bool:
        return self.version is not None and f"{self.version}.".startswith(f"{version}.")


def server_command(version: str | None, environ: Mapping[str, str]) -> ServerCommand:
    """Return the command of a version, or of the installed version for None.

    Raise `NotInstalled` if no tree contains the version.
    """
    if version is None or Installation(INSTALLED).has_version(version):
        return installed_server
    tree = Installation(tree_of(version, environ))
    if not tree.has_version(version):
        raise NotInstalled(f"rabbitmq-server {version}", "HAREBELL_AMQP_URL")
    return partial(_command_in_tree, tree.root)


def _command_in_tree(root: Path, directory: Path) -> list[str]:
    """Return a command that enters the tree, in which `directory` has the same path."""
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        ENTER,
        "enter",
        str(root),
        str(directory),
        str(DEBIAN_SCRIPT),
    ]


def tree_of(version: str, environ: Mapping[str, str]) -> Path:
    """Return the path of the tree of a version."""
    return cache_folder(environ) / f"rabbitmq-{version}"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the Debian trees, below the cache folder of the user."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    return Path(cache) / "harebell"


def main() -> None:
    """Print the suite and the path of the tree that BROKER needs, or nothing."""
    version = os.environ.get("BROKER")
    if not version or Installation(INSTALLED).has_version(version):
        return
    if version not in SUITES:
        known = ", ".join(SUITES)
        raise SystemExit(f"BROKER must be the installed version or one of {known}, not {version}.")
    print(SUITES[version], tree_of(version, os.environ))  # noqa: T201  # read by the Makefile


if __name__ == "__main__":
    main()
