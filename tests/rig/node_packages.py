"""The packages of npm for tests, with the versions and hashes of a lock file."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.rig.registries import require_registries

FILES: Final = Path(__file__).parent / "node"
LOCK: Final = "package-lock.json"
INSTALL_TIMEOUT: Final = 300.0  # seconds
HASH_LENGTH: Final = 16  # characters in the name of a folder


def installed_packages(environ: Mapping[str, str]) -> Path:
    """Return the folder of the installed packages. Install them at the first call.

    The folder is in the cache of the user, and its name contains a hash of the lock file.
    """
    lock = FILES / LOCK
    require_registries(environ)
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    name = f"node-{sha256(lock.read_bytes()).hexdigest()[:HASH_LENGTH]}"
    folder = Path(cache) / "harebell" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            _install(Path(draft) / name)
            if not folder.exists():  # another process may have been faster
                (Path(draft) / name).rename(folder)
    return folder


def _install(folder: Path) -> None:
    shutil.copytree(FILES, folder)
    command = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT)  # noqa: S603  # a fixed command
