"""The set-up script selects the best working Python. The interpreters here are scripts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import harebell.dev

SCRIPT = Path(harebell.dev.__path__[0]) / "find_python.sh"
TOOLS = ["sh", "cut", "sort", "tail", "tr"]
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
    (tmp_path / "tools").mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path is not None
        (tmp_path / "tools" / tool).symlink_to(path)
    return tmp_path


def found(machine: Path, **environment: str) -> str:
    done = subprocess.run(  # noqa: S603  # the command is ours
        ["/bin/sh", str(SCRIPT)],
        env={
            "HOME": str(machine),
            "PATH": os.pathsep.join(
                str(machine / folder) for folder in ("bin", "distribution", "tools")
            ),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_newest_working_python_is_selected(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.12", "echo 0 3.12.1 /a/python3.12")
    interpreter(machine / "bin" / "python3.13", "exit 0  # too old, or no release")
    interpreter(machine / "bin" / "python3", "echo 0 3.11.9 /a/python3")

    assert found(machine) == "/a/python3.12"


def test_versions_are_compared_as_numbers_including_pyenv(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.13", "echo 0 3.13.9 /a/python3.13")
    pyenv = machine / ".pyenv" / "versions" / "3.13.10" / "bin" / "python3"
    interpreter(pyenv, "echo 0 3.13.10 /pyenv/python3")

    assert found(machine) == "/pyenv/python3"


def test_optimised_build_is_selected_before_a_newer_build(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.13", "echo 0 3.13.9 /pyenv/python3.13")
    interpreter(machine / "bin" / "python3.11", "echo 1 3.11.2 /usr/bin/python3.11")

    assert found(machine) == "/usr/bin/python3.11"


def test_interpreter_behind_a_shim_of_the_same_name_is_found(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.13", "echo 0 3.13.9 /pyenv/python3.13")
    interpreter(machine / "distribution" / "python3.13", "echo 1 3.13.5 /usr/bin/python3.13")

    assert found(machine) == "/usr/bin/python3.13"


def test_named_python_is_selected_or_none(machine: Path) -> None:
    interpreter(machine / "bin" / "python3.12", "echo 0 3.12.1 /a/python3.12")
    interpreter(machine / "bin" / "python3.13", "echo 0 3.13.9 /a/python3.13")

    assert found(machine, PYTHON="python3.12") == "/a/python3.12"
    assert found(machine, PYTHON="python3.10") == ""


def test_output_is_empty_without_a_python(machine: Path) -> None:
    assert found(machine) == ""
