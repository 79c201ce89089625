"""Tasks of tests, registered as a team's own distribution registers them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

METADATA: Final = "Metadata-Version: 2.1\nName: harebell-{0}\nVersion: 1\n"


def install(folder: Path, name: str, tasks: Mapping[str, str]) -> dict[str, str]:
    """Install tasks such as `{"bench.start": "module:function"}`.

    Return the environment with which an executor finds them.
    """
    details = folder / f"harebell_{name}-1.dist-info"
    details.mkdir(parents=True, exist_ok=True)
    entry_points = "".join(f"{task} = {target}\n" for task, target in tasks.items())
    (details / "METADATA").write_text(METADATA.format(name))
    (details / "entry_points.txt").write_text(f"[harebell.tasks]\n{entry_points}")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
