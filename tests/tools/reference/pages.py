"""The generated files, by their path below `docs`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.tools.reference import (
    alerts,
    commands,
    errors,
    indexes,
    messages,
    schedule,
    settings,
    states,
)

FOLDER: Final = Path(__file__).parents[3] / "docs"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/command-line.md": commands.page,
    "reference/environment-variables.md": settings.page,
    "reference/schedule-fields.md": schedule.page,
    "reference/messages.md": messages.page,
    "reference/run-states.md": states.page,
    "reference/images/run-states.svg": states.diagram,
    "reference/error-codes.md": errors.page,
    "reference/alert-rules.md": alerts.page,
    "decisions/index.md": indexes.decisions,
    "llms.txt": indexes.llms,
}


def write(folder: Path = FOLDER) -> None:
    """Write every page."""
    for name, make in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8")
