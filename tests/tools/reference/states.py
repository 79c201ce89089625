"""The page and the diagram of the states of a run, from the transition table."""

import math
from html import escape
from typing import Final

from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, codes, table

from harebell.domain.reason_text import REASON_TEXT, SCHEDULE_STATE_TEXT
from harebell.domain.run_states import ENDED, TRANSITIONS, Actor, RunState, ScheduleState

WIDTH: Final = 900
HEIGHT: Final = 560
BOX: Final = (120, 44)  # width and height of a state
# The centre of each state. A new state needs a place, and the command fails without it.
PLACES: Final[dict[RunState, tuple[int, int]]] = {
    RunState.STAGED: (150, 270),
    RunState.RUNNING: (450, 270),
    RunState.RETRYING: (450, 60),
    RunState.SUCCEEDED: (800, 60),
    RunState.DEAD: (800, 150),
    RunState.UNRESOLVED: (800, 270),
    RunState.CANCELLED: (150, 500),
    RunState.EXPIRED: (450, 500),
    RunState.SKIPPED: (800, 500),
}
MEANINGS: Final[dict[RunState, str]] = {
    RunState.STAGED: "The row and the ticket exist, and no attempt runs.",
    RunState.RUNNING: "An executor has claimed the run and renews its lease.",
    RunState.RETRYING: "An attempt failed, and the next attempt waits for its time.",
    RunState.SUCCEEDED: "An attempt succeeded.",
    RunState.DEAD: "No further attempt is allowed. A dead letter describes the failure.",
    RunState.UNRESOLVED: "The outcome of an attempt is unknown, and a person must decide.",
    RunState.CANCELLED: "The run was withdrawn or stopped.",
    RunState.EXPIRED: "The run did not start within `expires_after`.",
    RunState.SKIPPED: "A policy or a person decided that the run does not happen.",
}
ACTORS: Final[dict[Actor, str]] = {
    Actor.TICKER: "the ticker, for a command, a new version or an expiry",
    Actor.RESTAGE: "the ticker, if a later version requires the time again",
    Actor.RESOLVE: "the ticker, for a person",
    Actor.CLAIM: "an executor that claims the run",
    Actor.COMPLETE: "the executor of the attempt, with its fencing token",
    Actor.RETURN: "an executor that stops before the start",
    Actor.RECOVER: "the rescuer of the ticker, after an expired lease",
    Actor.REPLAY: "the dlq_inspector, for a replay",
    Actor.OVERLAP: "the overlap policy",
    Actor.LABEL: "the concurrency label",
    Actor.DELAY: "the delay of a start",
}


def page() -> str:
    """Return the page."""
    intro = (
        "For each scheduled time, a schedule has at most one run, whose row has one of these "
        "states.\n"
        "Each transition is one conditional update that increases the sequence number by 1.\n"
        "Grey states are final, except for the dashed transitions of a person or a new version."
    )
    states = [
        (code(state.value), "yes" if state in ENDED else "no", MEANINGS[state])
        for state in RunState
    ]
    changes = [
        (code(before.value), code(after.value), codes(sorted(actor.value for actor in actors)))
        for (before, after), actors in TRANSITIONS.items()
    ]
    return markdown.page(
        "States",
        intro,
        "![States of a run and their transitions](images/run-states.svg)",
        "## States of a run",
        table(("state", "ended", "meaning"), states),
        "## Transitions",
        "The ticker creates a run as `staged`, or as `skipped` if the run must not happen.",
        table(("from", "to", "by"), changes),
        table(("by", "meaning"), [(code(each.value), ACTORS[each]) for each in Actor]),
        "## Reasons",
        "If a run does not simply execute, this is why.",
        table(
            ("reason", "meaning"), [(code(each.value), text) for each, text in REASON_TEXT.items()]
        ),
        "## States of a schedule",
        table(
            ("state", "meaning"),
            [(code(each.value), SCHEDULE_STATE_TEXT[each]) for each in ScheduleState],
        ),
    )


def diagram() -> str:
    """Return the diagram as SVG. Its colours are readable on light and on dark pages."""
    edges = [
        _edge(before, after, is_dashed=before in ENDED)
        for before, after in TRANSITIONS
        if before != after
    ]
    boxes = [_box(state) for state in RunState]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="17" role="img">'
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="#5c6bc0"/></marker></defs>'
    )
    return "\n".join(
        [
            head,
            "<title>States of a run and their transitions</title>",
            tip,
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff" rx="8"/>',
            *edges,
            *boxes,
            "</svg>\n",
        ]
    )


def _box(state: RunState) -> str:
    x, y = PLACES[state]
    width, height = BOX
    fill = "#e0e0e0" if state in ENDED else "#c5cae9"
    return (
        f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" '
        f'rx="8" fill="{fill}" stroke="#3949ab"/>'
        f'<text x="{x}" y="{y + 6}" text-anchor="middle" fill="#1a1a1a">'
        f"{escape(state.value)}</text>"
    )


def _edge(before: RunState, after: RunState, *, is_dashed: bool) -> str:
    """Return the curve of a transition. A pair with both directions has two separate curves."""
    (x1, y1), (x2, y2) = PLACES[before], PLACES[after]
    length = math.hypot(x2 - x1, y2 - y1)
    is_pair = (after, before) in TRANSITIONS
    bend = 26 if is_pair else 0
    if _passes_a_state(before, after):
        bend = 160 if x1 == x2 else 70  # a box is wider than high
    across = ((y2 - y1) / length, (x1 - x2) / length)
    middle = ((x1 + x2) / 2 + across[0] * bend, (y1 + y2) / 2 + across[1] * bend)
    start, end = _border(before, middle), _border(after, middle)
    dash = ' stroke-dasharray="6 5"' if is_dashed else ""
    return (
        f'<path d="M{start[0]:.0f} {start[1]:.0f}Q{middle[0]:.0f} {middle[1]:.0f} '
        f'{end[0]:.0f} {end[1]:.0f}" fill="none" stroke="#5c6bc0" stroke-width="1.6"{dash} '
        'marker-end="url(#tip)"/>'
    )


def _passes_a_state(before: RunState, after: RunState) -> bool:
    """Return whether the line between both centres meets the box of another state."""
    (x1, y1), (x2, y2) = PLACES[before], PLACES[after]
    points = [(x1 + (x2 - x1) * step / 20, y1 + (y2 - y1) * step / 20) for step in range(21)]
    return any(
        abs(px - x) < BOX[0] / 2 + 6 and abs(py - y) < BOX[1] / 2 + 6
        for state, (x, y) in PLACES.items()
        if state not in {before, after}
        for px, py in points
    )


def _border(state: RunState, towards: tuple[float, float]) -> tuple[float, float]:
    """Return the point on the border of the state in the direction of another point."""
    x, y = PLACES[state]
    dx, dy = towards[0] - x, towards[1] - y
    scale = min(
        (BOX[0] / 2 + 3) / abs(dx) if dx else math.inf,
        (BOX[1] / 2 + 3) / abs(dy) if dy else math.inf,
    )
    return x + dx * scale, y + dy * scale
