"""What the stack remembers from one start to the next: ports, password, where the data is."""

import secrets
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from harebell.dev import files
from harebell.dev.errors import StateUnreadable

PASSWORD_BYTES = 12


class State(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    password: str
    ports: dict[str, int] = {}
    database_directory: Path | None = None


def load(path: Path) -> State:
    """The state as it was left, or a new one with a password of its own."""
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return State(password=secrets.token_hex(PASSWORD_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise StateUnreadable(path, first) from error


def save(path: Path, state: State) -> None:
    files.write(path, state.model_dump_json(indent=2))
