"""The lock of the suites, with another process that has it."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.architecture.source_tree import ROOT
from tests.suite.lock import FOR_ALL_USERS, SuiteIsBusy, suite_lock

HOLDER = """\
import sys
from pathlib import Path
from tests.suite.lock import suite_lock
with suite_lock("make other", path=Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path) -> "subprocess.Popen[str]":
    holder = subprocess.Popen(  # noqa: S603  # this test
        [sys.executable, "-c", HOLDER, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    return holder


def test_second_suite_says_for_what_it_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lock"
    with start_holder(path) as holder:
        with (
            pytest.raises(SuiteIsBusy, match="make other"),
            suite_lock("make test", path=path, max_wait=0.1, interval=0.05),
        ):
            pass
        assert f"Waiting for `make other` of process {holder.pid} in {ROOT}" in (
            capsys.readouterr().err
        )
        holder.communicate()

    with suite_lock("make test", path=path, max_wait=0.0):
        assert "make test" in path.read_text()


def test_killed_suite_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with start_holder(path) as holder:
        holder.kill()
        holder.communicate()

    with suite_lock("make test", path=path, max_wait=0.0):
        pass


def test_lock_is_for_every_user(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    with suite_lock("make test", path=path, max_wait=0.0):
        assert stat.S_IMODE(path.stat().st_mode) == FOR_ALL_USERS
