"""The time zone database: which of two this process reads, its version, and whether that is old.

`zoneinfo` prefers the data of the system, which can be years older than the package `tzdata`.
"""

import re
import zoneinfo
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
CHOSEN_BY: Final = "PYTHONTZPATH"  # the variable by which an operator chooses the data
MAX_AGE: Final = timedelta(days=180)  # after the last day of the year of a version
_MAX_LINE: Final = 64  # characters of a first line
_ZI_PREFIX: Final = "# version "
_VERSION: Final = re.compile(r"(\d{4})([a-z]*)")


def use_newest_tzdata(environ: Mapping[str, str]) -> None:
    """Let `zoneinfo` read the package `tzdata` if that is newer than the data of the system.

    The data that PYTHONTZPATH names stay in use.
    """
    if CHOSEN_BY not in environ and _is_newer(packaged_version(), tzdata_version()):
        zoneinfo.reset_tzpath(())
        zoneinfo.ZoneInfo.clear_cache()


def tzdata_version(path: Iterable[str] | None = None) -> str:
    """Return the version, such as "2025b", or "unknown".

    `path` contains the folders that `zoneinfo` searches, in the order of the search.
    """
    for folder in map(Path, zoneinfo.TZPATH if path is None else path):
        if folder.is_dir() and any(folder.iterdir()):
            # zoneinfo uses the data of this folder, even if the folder states no version.
            return _version_of(folder)
    return packaged_version()


def packaged_version() -> str:
    """Return the version of the package `tzdata`, or "unknown" without it."""
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return UNKNOWN


def fault_of(version: str, today: date, *, packaged: str = UNKNOWN) -> str | None:
    """Return in a sentence why a version is old, or None.

    Most years have several versions, so one of a year that ended 180 days ago is old.
    """
    year, _ = _order(version)
    if _is_newer(packaged, version):
        return f"The time zone data are of {version}, but those of {packaged} are installed."
    if year == 0:
        return "The version of the time zone data is unknown."
    if date(year, 12, 31) + MAX_AGE < today:
        return f"The time zone data are of {version}, and later laws may have changed the clocks."
    return None


def _is_newer(version: str, other: str) -> bool:
    return _order(version) > _order(other)


def _order(version: str) -> tuple[int, str]:
    """Return the year and the letter of a version, or 0 for another text."""
    found = _VERSION.fullmatch(version)
    return (0, "") if found is None else (int(found[1]), found[2])


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
