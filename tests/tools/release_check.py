"""The checks before a release: equal wheels, valid metadata, and an installation on each Python.

Run `python -m tests.tools.release_check`, as `make release-check` does. It needs a package index.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
BUILD_TIME: Final = "1735689600"  # seconds since 1970: every file of a wheel has this time
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
TWINE: Final = "twine>=6,<8"  # no part of the lock, because only a release needs it
TIMEOUT: Final = 900.0  # seconds of one command
UV: Final = (str(BIN / "uv"), "--quiet", "--no-config")
# The wheel, the name of its folder of sources, and a command that each installation executes.
WHEELS: Final = (
    ("harebell", ".", "import harebell.executor.service, harebell.cli"),
    ("harebell_client", "schemas", "from harebell.client import Client"),
)


def main() -> None:
    """Run every check, and exit with 1 after the first failure."""
    with tempfile.TemporaryDirectory() as folder:
        wheels = build_twice(Path(folder))
        execute(
            "twine", [*UV, "tool", "run", "--from", TWINE, "twine", "check", "--strict", *wheels]
        )
        found = [version for version in PYTHONS if is_installed(version)]
        for version in found:
            for (name, _, use), wheel in zip(WHEELS, wheels, strict=True):
                install(Path(folder) / f"{name}-{version}", version, wheel, use)
    missing = [version for version in PYTHONS if version not in found]
    sys.stdout.write(f"The wheels install on Python {', '.join(found)}.\n")
    if missing:
        sys.stdout.write(
            f"Not checked, because this machine lacks them: Python {', '.join(missing)}.\n"
        )


def build_twice(folder: Path) -> list[str]:
    """Build each wheel from two copies of the last commit, and return the first of each pair.

    Exit with 1 if the wheels of a pair differ.
    """
    pairs = [build(folder / name) for name in ("first", "second")]
    for wheels in zip(*pairs, strict=True):
        if len({digest(wheel) for wheel in wheels}) > 1:
            sys.exit(f"The two builds of {wheels[0].name} differ.")
        sys.stdout.write(f"Both builds are equal: {wheels[0].name}, sha256 {digest(wheels[0])}.\n")
    return [str(wheel) for wheel in pairs[0]]


def build(folder: Path) -> list[Path]:
    """Build the wheels in a new copy of the last commit, whose files have other times."""
    source, target = folder / "source", folder / "wheels"
    execute("git", ["git", "clone", "--quiet", "--no-local", str(ROOT), str(source)])
    for index, file in enumerate(sorted(source.rglob("*"))):
        os.utime(file, (time.time(), time.time() - index))
    for _, sources, _ in WHEELS:
        command = [str(BIN / "hatchling"), "build", "--target", "wheel", "--directory", str(target)]
        execute("hatchling", command, cwd=source / sources, SOURCE_DATE_EPOCH=BUILD_TIME)
    return [next(target.glob(f"{name}-*.whl")) for name, _, _ in WHEELS]


def digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


def is_installed(version: str) -> bool:
    """Return whether this machine has the interpreter. Nothing is downloaded."""
    command = [*UV, "python", "find", "--no-python-downloads", version]
    return (
        subprocess.run(  # noqa: S603  # constants
            command, check=False, capture_output=True, timeout=TIMEOUT
        ).returncode
        == 0
    )


def install(environment: Path, version: str, wheel: str, use: str) -> None:
    """Install the wheel into an empty environment and execute one line of Python with it."""
    interpreter = str(environment / "bin" / "python")
    execute("venv", [*UV, "venv", "--no-python-downloads", "--python", version, str(environment)])
    execute("installation", [*UV, "pip", "install", "--python", interpreter, wheel])
    execute(f"{Path(wheel).name} on Python {version}", [interpreter, "-c", use])


def execute(name: str, command: Sequence[str], cwd: Path = ROOT, **environment: str) -> None:
    """Run a command. Exit with 1 and its output if it fails."""
    done = subprocess.run(  # noqa: S603  # constants and paths of this machine
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        timeout=TIMEOUT,
    )
    if done.returncode:
        sys.exit(f"{name} failed: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
