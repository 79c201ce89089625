"""The system user of PostgreSQL when the caller is root, and the folders it can enter."""

import os
import pwd
from pathlib import Path

from harebell.dev.spawn import OsUser, run

DEBIAN_USER = "postgres"  # created by the Debian package
HAREBELL_USER = "harebell"
ADD_USER = [
    "useradd",
    "--system",
    "--no-create-home",
    "--shell",
    "/usr/sbin/nologin",
    HAREBELL_USER,
]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def unprivileged_user() -> OsUser | None:
    """Return an user for PostgreSQL, which rejects root. Return None if the caller is not root."""
    if os.geteuid() != 0:
        return None
    user = _find(DEBIAN_USER) or _find(HAREBELL_USER)
    if user is None:
        run(ADD_USER, environment=ENVIRONMENT)
        user = _find(HAREBELL_USER)
    return user


def can_reach(user: OsUser | None, directory: Path) -> bool:
    """Return whether the user can enter the folder. The kernel decides, because of ACLs."""
    return run(["test", "-x", str(directory)], environment=ENVIRONMENT, user=user) == 0


def _find(name: str) -> OsUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return OsUser(entry.pw_uid, entry.pw_gid)
