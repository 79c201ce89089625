"""The Debian package of the working tree, and the same package as an earlier version."""

import os
import re
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "compose" / "debian" / "build.sh"
INPUTS: Final = ("compose/debian", "services", "schemas", "requirements", "pyproject.toml")
PAGE: Final = "docs/operations/systemd.md"
BUILD_TIMEOUT: Final = 900.0  # seconds
HASH_LENGTH: Final = 16  # characters in the name of a folder
EARLIER: Final = "0.0.9"


def built_package(environ: Mapping[str, str]) -> Path:
    """Return the package. Build it if an input has changed since the last build.

    The package is in the cache of the user, below a hash of the inputs.
    """
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    folder = Path(cache) / "harebell" / f"package-{_fingerprint()}"
    if not list(folder.glob("*.deb")):
        _run("sh", str(BUILD), str(folder))
    (package,) = folder.glob("*.deb")
    return package


def earlier_version(package: Path, directory: Path) -> Path:
    """Return the package with an earlier version number, in its control file and in its code."""
    tree = directory / "tree"
    _run("dpkg-deb", "--raw-extract", str(package), str(tree))
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {EARLIER}", control.read_text()))
    (code,) = tree.glob("usr/lib/harebell/lib/python3*/site-packages/harebell/contract/_version.py")
    code.write_text(f'"""The version of Harebell."""\n\n__version__ = "{EARLIER}"\n')
    earlier = directory / f"harebell_{EARLIER}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(earlier))
    return earlier


def _fingerprint() -> str:
    digest = sha256()
    paths = [PAGE, *INPUTS]
    files = [each for path in paths for each in [ROOT / path, *sorted((ROOT / path).rglob("*"))]]
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(str(file.relative_to(ROOT)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:HASH_LENGTH]


def _run(*command: str) -> None:
    done = subprocess.run(  # noqa: S603  # the commands of this module
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
        env=os.environ | {"PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stdout
