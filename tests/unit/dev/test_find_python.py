"""The set-up script selects the newest working Python. The interpreters here are scripts."""

import os
import subprocess
from pathlib import Path

import pytest

import harebell.dev

SCRIPT = Path(harebell.dev.__path__[0]) / "find_python.sh"
NAMES = ["python3.14", "python3.13", "python3.12", "python3.11", "python3"]


def interpreter(path: Path, answer: str) -> None:
    """Create an interpreter that prints a fixed text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for name in NAMES:
        interpreter(tmp_path / "bin" / name, "exit 127  # a shim that leads nowhere")
    return tmp_path


def found(machine: Path, **environment: str) -> str:
    done = subprocess.run(  # noqa: S603  # the command is ours
        ["/bin/sh", str(SCRIPT)],
        env={
            "HOME": str(machine),
            "PATH": f"{machine / 'bin'}{os.pathsep}/usr/bin:/bin",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_newest_working_python_is_selected(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.12", "echo 3.12.1 /a/python3.12")
    interpreter(machine / "bin" / "python3.13", "exit 0  # too old, or no release")
    interpreter(machine / "bin" / "python3", "echo 3.11.9 /a/python3")

    assert found(machine) == "/a/python3.12"


def test_versions_are_compared_as_numbers_including_pyenv(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.13", "echo 3.13.9 /a/python3.13")
    pyenv = machine / ".pyenv" / "versions" / "3.13.10" / "bin" / "python3"
    interpreter(pyenv, "echo 3.13.10 /pyenv/python3")

    assert found(machine) == "/pyenv/python3"


def test_named_python_is_selected_or_none(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.12", "echo 3.12.1 /a/python3.12")
    interpreter(machine / "bin" / "python3.13", "echo 3.13.9 /a/python3.13")

    assert found(machine, PYTHON="python3.12") == "/a/python3.12"
    assert found(machine, PYTHON="python3.10") == ""


def test_output_is_empty_without_a_python(machine: Path) -> None:
    assert found(machine) == ""
