"""Which release of the zone data is in use."""

from pathlib import Path

from harebell.runtime.tzdata import UNKNOWN, tzdata_version


def folder(path: Path, **files: str) -> str:
    path.mkdir()
    (path / "UTC").touch()
    for name, text in files.items():
        (path / name).write_text(text)
    return str(path)


def test_the_release_is_read_from_where_zoneinfo_looks_first(tmp_path: Path) -> None:
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c\n"})
    compiled = folder(tmp_path / "compiled", **{"tzdata.zi": "# version 2025b\n# ddeps\n"})

    assert tzdata_version([stated, compiled]) == "2026c"
    assert tzdata_version([compiled, stated]) == "2025b"


def test_folders_that_are_missing_or_empty_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c"})

    found = tzdata_version([str(tmp_path / "missing"), str(tmp_path / "empty"), stated])

    assert found == "2026c"


def test_data_that_does_not_say_its_release_is_unknown_not_another_release(tmp_path: Path) -> None:
    silent = folder(tmp_path / "silent", **{"tzdata.zi": "no heading"})
    stated = folder(tmp_path / "stated", **{"+VERSION": "2026c"})

    assert tzdata_version([silent, stated]) == UNKNOWN


def test_without_a_folder_it_is_the_release_of_the_package() -> None:
    assert tzdata_version([]).startswith("20")


def test_this_host_knows_its_release() -> None:
    assert tzdata_version()
