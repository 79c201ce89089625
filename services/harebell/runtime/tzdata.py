"""The version of the time zone database, read from the files of `zoneinfo`."""

import zoneinfo
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
_MAX_LINE: Final = 64  # characters of a first line
_ZI_PREFIX: Final = "# version "


def tzdata_version(path: Iterable[str] | None = None) -> str:
    """Return the version, such as "2025b", or "unknown".

    `path` contains the folders that `zoneinfo` searches, in the order of the search.
    """
    for folder in map(Path, zoneinfo.TZPATH if path is None else path):
        if folder.is_dir() and any(folder.iterdir()):
            # zoneinfo uses the data of this folder, even if the folder states no version.
            return _version_of(folder)
    return _packaged_version()


def _version_of(folder: Path) -> str:
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


def _packaged_version() -> str:
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return UNKNOWN
