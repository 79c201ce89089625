"""The files of the stack: written atomically, and readable only by their owner."""

import os
import secrets
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harebell.dev.errors import StateUnreadable
from harebell.dev.plan import StackPlan

FILE_MODE = 0o600  # the files contain passwords
FOLDER_MODE = 0o700


def make_private(root: Path) -> None:
    """Make the folder of the stack, which only its owner can enter."""
    root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    root.chmod(FOLDER_MODE)  # a stack of an earlier version had an open folder


def write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.touch(mode=FILE_MODE)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


STATE_FILE = "stack.json"
PLAN_FILE = "plan.json"
PASSWORD_BYTES = 12

M = TypeVar("M", bound=BaseModel)


class State(BaseModel):
    """The password, the ports and the database folder of the private servers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    password: str
    ports: dict[str, int] = {}
    database_directory: Path | None = None


def load_state(root: Path) -> State:
    """Return the saved state, or a new state with a random password."""
    known = _load(root / STATE_FILE, State)
    return known or State(password=secrets.token_hex(PASSWORD_BYTES))


def save_state(root: Path, state: State) -> None:
    write(root / STATE_FILE, state.model_dump_json(indent=2))


def load_plan(root: Path) -> StackPlan | None:
    """Return the plan of the last start, or None."""
    return _load(root / PLAN_FILE, StackPlan)


def save_plan(root: Path, plan: StackPlan) -> None:
    write(root / PLAN_FILE, plan.model_dump_json(indent=2))


def _load(path: Path, model: type[M]) -> M | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise StateUnreadable(path, first) from error
