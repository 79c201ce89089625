"""The system account that PostgreSQL runs as when we are root, and what that account can reach."""

import os
import pwd
from pathlib import Path

from harebell.dev.spawn import Account, run

PREFERRED = "postgres"  # made by Debian's package
OWN = "harebell"
ADD_OWN = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", OWN]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def unprivileged() -> Account | None:
    """An account for a server that refuses root; None when we are not root and need none."""
    if os.geteuid() != 0:
        return None
    found = _find(PREFERRED) or _find(OWN)
    if found is None:
        run(ADD_OWN, environment=ENVIRONMENT)
        found = _find(OWN)
    return found


def can_reach(account: Account | None, directory: Path) -> bool:
    """Whether the account may enter the directory: asked of the kernel, which knows about ACLs."""
    return run(["test", "-x", str(directory)], environment=ENVIRONMENT, account=account) == 0


def _find(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)
