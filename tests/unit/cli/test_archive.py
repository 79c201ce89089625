"""`harebell archive`, which reads a directory without a service."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from tests.unit.cli.conftest import CommandLine

from harebell.contract.ids import run_id
from harebell.runtime.archive import MANIFEST, ArchivePart, PartWriter, file_name, record_part

ID: Final = UUID("6b0c0d8e-0000-4000-8000-000000000001")
DAYS: Final = (date(2026, 10, 1), date(2026, 10, 2))


def at(day: date, hour: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


def row(day: date, hour: int, **columns: Any) -> str:
    times = {"scheduled_for": at(day, hour).isoformat(), "schedule_id": str(ID)}
    return json.dumps(times | columns)


def write_part(root: Path, day: date, number: int, runs: list[str], attempts: list[str]) -> None:
    files = {}
    for kind, lines in (("runs", runs), ("attempts", attempts)):
        writer = PartWriter(
            directory=root / day.isoformat(), name=file_name(kind, number), owner="test"
        )
        writer.open()
        writer.write(lines)
        files[kind] = writer.close()
    record_part(root, day, ArchivePart(number, files), owner="test")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an archive of two days with three runs in each part."""
    for day in DAYS:
        runs = [
            row(day, hour, tenant="acme", key="invoices", state="dead" if hour else "succeeded")
            for hour in range(3)
        ]
        attempts = [row(day, hour, replay_number=0, number=1) for hour in range(3)]
        write_part(tmp_path, day, 1, runs, attempts)
    write_part(tmp_path, DAYS[0], 2, [row(DAYS[0], 9, tenant="b", key="x", state="dead")], [])
    return tmp_path


@pytest.mark.requirement("S118")
def test_list_shows_the_counts_and_the_size_of_each_day(cli: CommandLine, root: Path) -> None:
    result = cli("archive", "list", "--dir", str(root), "-o", "json")

    first, second = json.loads(result.stdout)
    sizes = sum(path.stat().st_size for path in (root / "2026-10-01").glob("*.gz"))
    assert first == {"day": "2026-10-01", "parts": 2, "runs": 4, "attempts": 3, "bytes": sizes}
    assert (second["parts"], second["runs"]) == (1, 3)


@pytest.mark.requirement("S118")
@pytest.mark.parametrize(
    ("filters", "hours"),
    [
        (["--state", "dead"], [(0, 1), (0, 2), (0, 9), (1, 1), (1, 2)]),
        (["--key", "invoices", "--state", "succeeded"], [(0, 0), (1, 0)]),
        (["--tenant", "b"], [(0, 9)]),
        (["--run", run_id(ID, at(DAYS[1], 2))], [(1, 2)]),
        (["--since", "2026-10-01T09:00:00Z", "--until", "2026-10-02T01:00:00Z"], [(0, 9), (1, 0)]),
        (["--limit", "5"], [(0, 0), (0, 1), (0, 2), (0, 9), (1, 0)]),
    ],
)
def test_show_prints_the_runs_that_match_all_filters(
    cli: CommandLine, root: Path, filters: list[str], hours: list[tuple[int, int]]
) -> None:
    result = cli("archive", "show", "--dir", str(root), *filters, "-o", "json")

    expected = [run_id(ID, at(DAYS[day], hour)) for day, hour in hours]
    runs = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [each["run_id"] for each in runs] == expected
    assert {len(each["attempts"]) for each in runs if each["tenant"] == "acme"} <= {1}


def test_show_without_a_match_has_the_exit_code_3(cli: CommandLine, root: Path) -> None:
    assert cli("archive", "show", "--dir", str(root), "--key", "none").exit_code == 3


def test_verify_accepts_an_intact_archive(cli: CommandLine, root: Path) -> None:
    result = cli("archive", "verify", "--dir", str(root), "-o", "json")

    assert (result.exit_code, json.loads(result.stdout)) == (0, {"days": 2, "faults": 0})


@pytest.mark.requirement("S118")
@pytest.mark.parametrize("change", ["remove", "cut", "flip", "time", "manifest", "name"])
def test_verify_reports_each_damaged_file(cli: CommandLine, root: Path, change: str) -> None:
    path, manifest = root / "2026-10-02" / "runs-1.jsonl.gz", root / "2026-10-02" / MANIFEST
    content = path.read_bytes()
    match change:
        case "remove":
            path.unlink()
        case "cut":
            path.write_bytes(content[:-9])
        case "flip":
            path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
        case "time":  # in the header, which the checksum of gzip does not include
            path.write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])
        case "manifest":
            manifest.write_text(manifest.read_text().replace('"count": 3', '"count": 4'))
        case _:
            manifest.write_text(manifest.read_text().replace("runs-1.jsonl.gz", "../../secret"))

    result = cli("archive", "verify", "--dir", str(root))

    assert result.exit_code == 1
    assert "2026-10-02: The" in result.stdout + result.stderr
    assert cli("archive", "verify", "--dir", str(root), "--day", "2026-10-01").exit_code == 0


def test_missing_directory_is_wrong_usage(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HAREBELL_ARCHIVE_DIR", raising=False)
    assert cli("archive", "list").exit_code == 2
    assert cli("archive", "list", "--dir", str(tmp_path / "none")).exit_code == 2


def test_file_that_no_manifest_names_has_no_meaning(cli: CommandLine, root: Path) -> None:
    day = DAYS[1] + timedelta(days=1)
    writer = PartWriter(directory=root / day.isoformat(), name=file_name("runs", 1), owner="test")
    writer.open()
    writer.write([row(day, 0)])
    writer.close()

    result = cli("archive", "list", "--dir", str(root), "-o", "json")

    assert [each["day"] for each in json.loads(result.stdout)] == ["2026-10-01", "2026-10-02"]
