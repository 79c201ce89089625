"""The settings of the migration: the URL of the owner as a value or as a file, and the wait."""

from datetime import timedelta
from pathlib import Path

import pytest

from harebell.contract.errors import InvalidInput
from harebell.storage.migration_settings import MigrationSettings

URL = "postgresql://owner:secret@database.example/harebell"


def test_file_contains_the_url(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")

    settings = MigrationSettings.load({"HAREBELL_DATABASE_URL_FILE": str(file)})

    assert settings.database_url == URL
    assert settings.wait == timedelta(0)
    assert "secret" not in repr(settings)


def test_value_of_the_url_replaces_the_file() -> None:
    environ = {"HAREBELL_DATABASE_URL": URL, "HAREBELL_DATABASE_URL_FILE": "/nowhere"}

    assert MigrationSettings.load(environ).database_url == URL


def test_wait_is_a_duration() -> None:
    environ = {"HAREBELL_DATABASE_URL": URL, "HAREBELL_MIGRATION_WAIT": "5m"}

    assert MigrationSettings.load(environ).wait == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("environ", "field", "part"),
    [
        ({}, "HAREBELL_DATABASE_URL", "required and missing"),
        ({"HAREBELL_DATABASE_URL_FILE": "/nowhere"}, "HAREBELL_DATABASE_URL_FILE", "readable"),
        ({"HAREBELL_DATABASE_URL_FILE": "/dev/null"}, "HAREBELL_DATABASE_URL_FILE", "empty"),
        (
            {"HAREBELL_DATABASE_URL": URL, "HAREBELL_MIGRATION_WAIT": "soon"},
            "HAREBELL_MIGRATION_WAIT",
            "'soon'",
        ),
    ],
)
def test_bad_setting_is_named(environ: dict[str, str], field: str, part: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        MigrationSettings.load(environ)

    assert raised.value.field == field
    assert part in raised.value.reason
