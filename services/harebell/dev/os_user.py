"""The system user of PostgreSQL when the caller is root, and the folders it can enter."""

import os
import pwd
from collections.abc import Mapping
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


def drop_privileges(root: Path, environ: Mapping[str, str]) -> None:
    """Continue as the user who called sudo, to whom all files of the stack then belong.

    The stack needs no right of root. A folder of an earlier call, which belongs to root, is given
    to the user.
    """
    if os.geteuid() != 0 or not environ.get("SUDO_UID", "0").isdecimal():
        return
    uid = int(environ.get("SUDO_UID", "0"))
    if uid == 0:
        return
    entry = pwd.getpwuid(uid)
    if root.exists() and root.stat().st_uid == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, uid, entry.pw_gid, follow_symlinks=False)
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(uid)


def can_reach(user: OsUser | None, directory: Path) -> bool:
    """Return whether the user can enter the folder. The kernel decides, because of ACLs."""
    return run(["test", "-x", str(directory)], environment=ENVIRONMENT, user=user) == 0


def _find(name: str) -> OsUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return OsUser(entry.pw_uid, entry.pw_gid)
