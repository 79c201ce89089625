"""The version of the time zone database."""

from pathlib import Path

from harebell.runtime.tzdata import UNKNOWN, tzdata_version


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


def test_this_host_has_a_known_version() -> None:
    assert tzdata_version()
