"""The URL of the owner, from a variable or from a file."""

import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest


def migrate(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harebell.storage"],
        env={"PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.postgres
@pytest.mark.long
async def test_migration_reads_the_url_from_a_file(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "database-url"
    path.write_text(f"{database_url}\n")
    connection = await asyncpg.connect(database_url)
    await connection.execute("DROP TABLE alembic_version")

    result = migrate(HAREBELL_DATABASE_URL_FILE=str(path))

    # Without its record, the migration begins again and finds the existing tables.
    assert result.returncode != 0
    assert "already exists" in result.stderr
    await connection.close()


def test_missing_url_is_an_error_with_both_variables() -> None:
    result = migrate()

    assert result.returncode == 1
    assert "HAREBELL_DATABASE_URL or HAREBELL_DATABASE_URL_FILE is required" in result.stderr


def test_unreadable_file_is_an_error_with_its_variable(tmp_path: Path) -> None:
    result = migrate(HAREBELL_DATABASE_URL_FILE=str(tmp_path / "none"))

    assert result.returncode == 1
    assert result.stderr.startswith("HAREBELL_DATABASE_URL_FILE: ")
