"""The Python environment of Celery, with the release of the benchmark."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.benchmarks.peers.celery import REQUIREMENT
from tests.rig.registries import require_registries

INSTALL_TIMEOUT: Final = 300.0  # seconds
HASH_LENGTH: Final = 16  # characters in the name of a folder
READY: Final = "ready"  # the file that a complete installation has


def installed_python(environ: Mapping[str, str]) -> Path:
    """Return the interpreter of the environment. Install the environment at the first call.

    The folder is in the cache of the user. A virtual environment cannot be renamed, so a file marks
    its completion, and a process that finds no such file installs the packages again.
    """
    require_registries(environ)
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    facts = f"{REQUIREMENT} {sys.executable} {sys.version}"
    name = f"celery-{sha256(facts.encode()).hexdigest()[:HASH_LENGTH]}"
    folder = Path(cache) / "harebell" / name
    python = folder / "bin" / "python"
    if not (folder / READY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
        for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, REQUIREMENT]):
            subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT)  # noqa: S603  # a fixed command
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
            Path(draft.name).rename(folder / READY)
    return python
