"""The files of the generated reference, by their path below `docs/reference`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.tools.reference import alerts, commands, errors, messages, schedule, settings, states

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "command-line.md": commands.page,
    "environment-variables.md": settings.page,
    "schedule-fields.md": schedule.page,
    "messages.md": messages.page,
    "run-states.md": states.page,
    "images/run-states.svg": states.diagram,
    "error-codes.md": errors.page,
    "alert-rules.md": alerts.page,
}


def write(folder: Path = FOLDER) -> None:
    """Write every page."""
    for name, make in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8")
