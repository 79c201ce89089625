"""Where pictures for the documents go: kept with them only when asked, so tests change no file.

`PICTURES=1 .venv/bin/python -m pytest tests/acceptance/test_management_ui.py` makes them anew.
"""

import os
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).parents[2] / "docs" / "operations" / "images"
LARGEST: Final = 150_000  # bytes; they are in the repository


def folder(otherwise: Path) -> Path:
    return KEPT if os.environ.get("PICTURES") else otherwise
