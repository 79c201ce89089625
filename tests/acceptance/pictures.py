"""The folder for the pictures of the documents.

Tests write pictures to a temporary folder and change no file of the repository by default.
`PICTURES=1 .venv/bin/python -m pytest tests/acceptance/test_management_ui.py` updates them.
"""

import os
from pathlib import Path
from typing import Final

IMAGES: Final = Path(__file__).parents[2] / "docs" / "operations" / "images"
MAX_IMAGE_SIZE: Final = 150_000  # bytes, because the pictures are in the repository


def picture_folder(temporary: Path) -> Path:
    return IMAGES if os.environ.get("PICTURES") else temporary
