"""The processes of the local stack: their files belong to one user alone."""

import os
import time
from pathlib import Path

import pytest

from harebell.dev.spawn import run, start_process

MAX_END = 30.0  # seconds until a process has ended
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.requirement("P15")
def test_files_of_a_process_are_private_under_any_umask(tmp_path: Path) -> None:
    caller = os.umask(0)
    try:
        code = run(["/usr/bin/touch", f"{tmp_path}/run"], environment=ENVIRONMENT)
        process = start_process(
            ["/usr/bin/touch", f"{tmp_path}/started"],
            log=tmp_path / "log",
            environment=ENVIRONMENT,
            directory=tmp_path,
        )
        deadline = time.monotonic() + MAX_END
        while process.is_running and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.umask(caller)

    assert code == 0
    assert mode_of(tmp_path / "run") == 0o600
    assert mode_of(tmp_path / "started") == 0o600
