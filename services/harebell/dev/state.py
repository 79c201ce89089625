"""Writing the stack's own small files: whole or not at all, and for the owner's eyes only."""

import os
import secrets
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harebell.dev.errors import StateUnreadable
from harebell.dev.plan import StackPlan

OWNER_ONLY = 0o600  # they hold passwords


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.touch(mode=OWNER_ONLY)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


STATE_FILE = "stack.json"
PLAN_FILE = "plan.json"
PASSWORD_BYTES = 12

Known = TypeVar("Known", bound=BaseModel)


class State(BaseModel):
    """Of the private servers: where they listen, how to log in, where the database's files are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    password: str
    ports: dict[str, int] = {}
    database_directory: Path | None = None


def load_state(root: Path) -> State:
    """The state as it was left, or a new one with a password of its own."""
    known = _load(root / STATE_FILE, State)
    return known or State(password=secrets.token_hex(PASSWORD_BYTES))


def save_state(root: Path, state: State) -> None:
    write(root / STATE_FILE, state.model_dump_json(indent=2))


def load_plan(root: Path) -> StackPlan | None:
    """What was last started, running or not."""
    return _load(root / PLAN_FILE, StackPlan)


def save_plan(root: Path, plan: StackPlan) -> None:
    write(root / PLAN_FILE, plan.model_dump_json(indent=2))


def _load(path: Path, model: type[Known]) -> Known | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise StateUnreadable(path, first) from error
