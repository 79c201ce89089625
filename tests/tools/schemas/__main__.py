"""The command `python -m tests.tools.schemas`, which writes the documents into `schemas/`."""

import sys
from pathlib import Path

from tests.tools.schemas.documents import write

if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("schemas"))
