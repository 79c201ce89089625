"""The writer of the bill of materials, which lists the packages of an installation from the lock.

Run `python -m tests.tools.bill_of_materials FILE`, as `make sbom` does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harebell.contract import __version__

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = ROOT / "requirements" / "services.txt"
DOWNLOAD_TIMEOUT: Final = 600.0  # seconds
BUILD_TIME: Final = "1735689600"  # seconds since 1970: every file of a wheel has this time


def install_from_lock(directory: Path) -> Path:
    """Make the environment `directory` with the packages of the lock and the built project.

    Return the interpreter of the environment, which contains no other package.
    Raise `CalledProcessError` if the package index does not answer or a hash differs.
    """
    venv.create(directory, clear=True)
    _pip(directory, "--require-hashes", "--only-binary", ":all:", "--requirement", str(SERVICES))
    with tempfile.TemporaryDirectory() as wheels:
        _pip(directory, "--no-deps", "--no-index", str(build_wheel(Path(wheels))))
    return directory / "bin" / "python"


def build_wheel(directory: Path) -> Path:
    """Build the project with the locked build tool and return its wheel."""
    _run(
        [*_PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation"],
        ["--wheel-dir", str(directory), str(ROOT)],
        SOURCE_DATE_EPOCH=BUILD_TIME,
    )
    (wheel,) = directory.glob("harebell-*.whl")
    return wheel


def write_bill(python: Path, path: Path) -> None:
    """Write the CycloneDX document of the environment of `python`.

    The same environment causes the same document, which therefore contains no time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _run(
        [sys.executable, "-m", "cyclonedx_py", "environment", str(python)],
        ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"],
        ["--output-format", "JSON", "--output-file", str(path)],
    )
    bill = json.loads(path.read_text())
    bill["metadata"]["component"]["version"] = __version__  # pyproject.toml does not contain it
    path.write_text(json.dumps(bill, indent=2) + "\n")


_PIP: Final = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def _pip(directory: Path, *arguments: str) -> None:
    _run([*_PIP, "--python", str(directory / "bin" / "python")], ["install", "--quiet"], arguments)


def _run(*arguments: Sequence[str], **environment: str) -> None:
    subprocess.run(  # noqa: S603  # the arguments are those of this module
        [each for part in arguments for each in part],
        check=True,
        timeout=DOWNLOAD_TIMEOUT,
        env={**os.environ, **environment},
    )


def main() -> None:
    """Write the bill of materials to the file of the command line."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of the services.")
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args().file
    with tempfile.TemporaryDirectory() as directory:
        write_bill(install_from_lock(Path(directory) / "environment"), path)
    print(path)  # noqa: T201  # the result of the command


if __name__ == "__main__":
    main()
