"""Tasks of tests, registered as a team's own distribution registers them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

METADATA: Final = "Metadata-Version: 2.1\nName: harebell-{0}\nVersion: 1\n"


def install(folder: Path, name: str, tasks: Mapping[str, str]) -> dict[str, str]:
    """What an executor's environment needs to have these: `{"bench.start": "module:function"}`."""
    details = folder / f"harebell_{name}-1.dist-info"
    details.mkdir(parents=True, exist_ok=True)
    points = "".join(f"{task} = {place}\n" for task, place in tasks.items())
    (details / "METADATA").write_text(METADATA.format(name))
    (details / "entry_points.txt").write_text(f"[harebell.tasks]\n{points}")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
