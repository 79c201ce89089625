"""The choice of the time zone database, its version and its age."""

import subprocess
import sys
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from harebell.domain.cron import Cron
from harebell.runtime import tzdata
from harebell.runtime.tzdata import UNKNOWN, fault_of, tzdata_version, use_newest_tzdata

JANUARY = datetime(2027, 1, 15, tzinfo=UTC)


def folder(path: Path, **files: str) -> str:
    path.mkdir()
    (path / "UTC").touch()
    for name, text in files.items():
        (path / name).write_text(text)
    return str(path)


def test_version_comes_from_the_first_folder_of_zoneinfo(tmp_path: Path) -> None:
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c\n"})
    compiled = folder(tmp_path / "compiled", **{"tzdata.zi": "# version 2025b\n# ddeps\n"})

    assert tzdata_version([stated, compiled]) == "2026c"
    assert tzdata_version([compiled, stated]) == "2025b"


def test_missing_and_empty_folders_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c"})

    found = tzdata_version([str(tmp_path / "missing"), str(tmp_path / "empty"), stated])

    assert found == "2026c"


def test_folder_without_a_version_is_unknown(tmp_path: Path) -> None:
    silent = folder(tmp_path / "silent", **{"tzdata.zi": "no heading"})
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c"})

    assert tzdata_version([silent, stated]) == UNKNOWN


def test_version_of_the_package_applies_without_a_folder() -> None:
    assert tzdata_version([]).startswith("20")


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("America/Vancouver", 16),  # keeps summer time, by a law of 2026
        ("Canada/Pacific", 16),
        ("America/Edmonton", 15),
        ("America/Yellowknife", 15),
        ("America/Winnipeg", 14),
        ("America/Havana", 13),
        ("Africa/Casablanca", 9),  # an hour less than before
        ("America/New_York", 14),
        ("Europe/Berlin", 8),
    ],
)
def test_local_time_follows_the_newest_laws(zone: str, hour: int) -> None:
    cron = Cron.parse("0 9 * * *", zone)

    assert cron.next_after(JANUARY) == JANUARY + timedelta(hours=hour)


@pytest.mark.parametrize(
    ("system", "environ", "is_replaced"),
    [
        ("2025b", {}, True),
        ("1999a", {}, True),
        (UNKNOWN, {}, True),
        (tzdata.packaged_version(), {}, False),
        ("2999a", {}, False),
        ("2025b", {tzdata.CHOSEN_BY: "/srv/zones"}, False),
    ],
)
def test_newer_package_replaces_the_data_of_the_system(
    monkeypatch: pytest.MonkeyPatch, system: str, environ: dict[str, str], *, is_replaced: bool
) -> None:
    paths: list[object] = []
    monkeypatch.setattr(tzdata, "tzdata_version", lambda: system)
    monkeypatch.setattr(zoneinfo, "reset_tzpath", paths.append)

    use_newest_tzdata(environ)

    assert paths == ([()] if is_replaced else [])


@pytest.mark.parametrize("module", ["harebell.cli", "harebell.bootstrap.process"])
def test_process_chooses_the_newest_data_at_its_start(tmp_path: Path, module: str) -> None:
    """Replace the choice by one that tells of its call, and start the entry point."""
    (tmp_path / "start.py").write_text(
        "import runpy, sys\n"
        "from harebell.runtime import tzdata\n"
        "tzdata.use_newest_tzdata = lambda environ: sys.exit(7)\n"
        "from harebell.bootstrap.process import run_service\n"
        "if 'process' in sys.argv[1]: run_service(None, 'ticker', None, environ={})\n"
        "runpy.run_module('harebell.cli', run_name='__main__')\n"
    )

    command = [sys.executable, str(tmp_path / "start.py"), module]
    ended = subprocess.run(command, check=False, timeout=60)  # noqa: S603  # fixed

    assert ended.returncode == 7


@pytest.mark.parametrize(
    ("version", "today", "packaged", "part"),
    [
        ("2026f", date(2026, 11, 27), "2026f", None),
        ("2026a", date(2027, 6, 29), UNKNOWN, None),
        ("2026f", date(2027, 6, 30), UNKNOWN, "of 2026f, and later laws"),
        ("2025b", date(2026, 11, 27), UNKNOWN, "of 2025b, and later laws"),
        ("2026e", date(2026, 11, 27), "2026f", "those of 2026f are installed"),
        ("2026f", date(2026, 11, 27), "2025b", None),
        (UNKNOWN, date(2026, 11, 27), UNKNOWN, "version of the time zone data is unknown"),
        ("2026f-le", date(2026, 11, 27), UNKNOWN, "is unknown"),
    ],
)
def test_old_data_have_a_fault(version: str, today: date, packaged: str, part: str | None) -> None:
    fault = fault_of(version, today, packaged=packaged)

    assert fault == part or (part is not None and fault is not None and part in fault)
