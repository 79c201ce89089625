"""The settings of the migration, from `HAREBELL_*` variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from pydantic import TypeAdapter, ValidationError

from harebell.contract.errors import InvalidInput
from harebell.contract.types import Duration
from harebell.storage.role_passwords import read_role_passwords

DATABASE_URL: Final = "HAREBELL_DATABASE_URL"  # the name of a variable
DATABASE_URL_FILE: Final = f"{DATABASE_URL}_FILE"  # the name of a variable
WAIT: Final = "HAREBELL_MIGRATION_WAIT"  # the name of a variable

_DURATION: Final = TypeAdapter[timedelta](Duration)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSettings:
    """The settings of the migration. `wait` bounds the wait for a database that is not available.

    Each migration waits for its locks separately.
    """

    database_url: str = field(repr=False)  # contains a password
    role_passwords: Mapping[str, str] = field(repr=False)
    wait: timedelta = timedelta(0)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings. Raise `InvalidInput` with the name of the bad variable."""
        return cls(
            database_url=_database_url(environ),
            role_passwords=read_role_passwords(environ),
            wait=_wait(environ.get(WAIT, "0s")),
        )


def _database_url(environ: Mapping[str, str]) -> str:
    if url := environ.get(DATABASE_URL):
        return url
    path = environ.get(DATABASE_URL_FILE)
    if not path:
        reason = f"The setting {DATABASE_URL} or {DATABASE_URL_FILE} is required and missing."
        raise InvalidInput(reason, field=DATABASE_URL, code="invalid_setting")
    try:
        url = Path(path).read_text().strip()
    except (OSError, ValueError) as error:  # ValueError: binary content, or a NUL in the path
        reason = f"The file of the setting must be readable text: {error}."
        raise InvalidInput(reason, field=DATABASE_URL_FILE, code="invalid_setting") from None
    if not url:
        reason = f"The file {path!r} must contain a URL of PostgreSQL, but it is empty."
        raise InvalidInput(reason, field=DATABASE_URL_FILE, code="invalid_setting")
    return url


def _wait(text: str) -> timedelta:
    try:
        return _DURATION.validate_python(text)
    except ValidationError:
        reason = f"The setting must be a duration such as 5m, not {text!r}."
        raise InvalidInput(reason, field=WAIT, code="invalid_setting") from None
