"""The user of the stack under sudo: all files belong to the user who called sudo."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534
PROGRAM = """
import os, sys
from pathlib import Path
from harebell.dev.os_user import drop_privileges
from harebell.dev.state import make_private, write
root = Path(sys.argv[1])
drop_privileges(root, os.environ)
make_private(root)
write(root / "new.json", "{}")
print(os.getuid(), os.getgid())
"""


def run(root: Path, **variables: str) -> str:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    completed = subprocess.run(  # noqa: S603  # a fixed command
        [sys.executable, "-c", PROGRAM, str(root)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can continue as another user")
def test_files_under_sudo_belong_to_the_caller_of_sudo() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        root = Path(folder) / "stack"
        (root / "logs").mkdir(parents=True)
        (root / "logs" / "old.log").touch()

        user, group = run(root, SUDO_UID=str(NOBODY)).split()

        assert int(user) == NOBODY
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in [root, *root.rglob("*")]}
        assert owners == {(int(user), int(group))}
        assert (root / "new.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can continue as another user")
@pytest.mark.parametrize("variables", [{}, {"SUDO_UID": "0"}, {"SUDO_UID": "x"}])
def test_root_without_sudo_continues_as_root(tmp_path: Path, variables: dict[str, str]) -> None:
    assert run(tmp_path / "stack", **variables) == "0 0"
