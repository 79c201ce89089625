"""Which release of the zone data we compute with: recorded with what was computed from it.

Apart from `cron`, which reads nothing, because finding out means looking at files.
"""

import zoneinfo
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
_MAX_LINE: Final = 64  # characters; in tzdata.zi the first line of a long file
_ZI_PREFIX: Final = "# version "


def tzdata_version(path: Iterable[str] | None = None) -> str:
    """Return such as "2025b". `path` is where zoneinfo looks, in its order."""
    for folder in map(Path, zoneinfo.TZPATH if path is None else path):
        if folder.is_dir() and any(folder.iterdir()):
            # zoneinfo prefers this folder's data even if it does not say which release it is.
            return _release(folder)
    return _packaged_release()


def _release(folder: Path) -> str:
    stated = _first_line(folder / "+VERSION")
    if stated:
        return stated
    line = _first_line(folder / "tzdata.zi")
    return line.removeprefix(_ZI_PREFIX) if line.startswith(_ZI_PREFIX) else UNKNOWN


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="ascii", errors="replace") as lines:
            return lines.readline(_MAX_LINE).strip()
    except OSError:
        return ""


def _packaged_release() -> str:
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return UNKNOWN
