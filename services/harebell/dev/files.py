"""Writing the stack's own small files: whole or not at all, and for the owner's eyes only."""

import os
from pathlib import Path

OWNER_ONLY = 0o600  # they hold passwords


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.touch(mode=OWNER_ONLY)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
