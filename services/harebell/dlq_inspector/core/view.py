"""What a person sees of a letter, in a list and by itself."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from harebell.contract.errors import InvalidInput
from harebell.contract.identity import run_id
from harebell.contract.scalars import LATEST, instant_text
from harebell.dlq_inspector.core.verdict import DeadLetterState
from harebell.kernel.cursor import PageCursor
from harebell.kernel.ledger import RunState

Row = Mapping[str, Any]


class DeadLetterStateFilter(StrEnum):
    """`resolved` is no state of a letter: its run has succeeded since it died."""

    OPEN = "open"
    REPLAYED = "replayed"
    RESOLVED = "resolved"
    DROPPED = "dropped"
    EDITED = "edited"
    ALL = "all"

    @classmethod
    def parse(cls, text: str) -> "DeadLetterStateFilter":
        try:
            return cls(text)
        except ValueError:
            reason = f"must be one of {', '.join(cls)}"
            raise InvalidInput(reason, field="state", code="invalid_state") from None


STORED: Final[
    Mapping[DeadLetterStateFilter, Sequence[DeadLetterState]]
] = {  # as which states it may be found
    DeadLetterStateFilter.OPEN: (DeadLetterState.OPEN,),
    DeadLetterStateFilter.REPLAYED: (DeadLetterState.REPLAYED,),
    DeadLetterStateFilter.RESOLVED: (DeadLetterState.OPEN, DeadLetterState.REPLAYED),
    DeadLetterStateFilter.DROPPED: (DeadLetterState.DROPPED,),
    DeadLetterStateFilter.EDITED: (DeadLetterState.EDITED,),
    DeadLetterStateFilter.ALL: tuple(DeadLetterState),
}


FIRST_PAGE: Final = PageCursor(LATEST, UUID(int=0))  # before every letter: the newest come first


def summary(row: Row) -> dict[str, Any]:
    """A line of the list."""
    run = None
    if row["schedule_id"] is not None:
        run = run_id(row["schedule_id"], row["scheduled_for"])
    return {
        "id": str(row["id"]),
        "kind": row["kind"],
        "run_id": run,
        **{name: row[name] for name in ("key", "tenant", "reason", "error_code", "error")},
        "attempts": row["attempts"],
        "dead_at": instant_text(row["dead_at"]),
        "state": row["shown_state"],
        "replays": row["replays"],
        "run_state": row["run_state"],
        "group": row["group_id"] and str(row["group_id"]),
    }


def detail(row: Row, story: Mapping[str, Any], replays: Iterable[Row]) -> dict[str, Any]:
    """All there is. The body of a message is in base64, and cut where `size` says it was longer."""
    body = row["body"]
    return {
        **summary(row),
        "story": dict(story),
        "body": None if body is None else base64.b64encode(body).decode(),
        "headers": story.get("headers") if body is not None else None,
        "queue": story.get("queue") if body is not None else None,
        "replay_history": [_replay(row, replay) for replay in replays],
        "first_id": row["first_id"] and str(row["first_id"]),
        "dropped": _decision(row["dropped_at"], row["dropped_by"], row["drop_note"]),
        "edited_from": row["edited_from"] and str(row["edited_from"]),
        "edited": _decision(row["edited_at"], row["edited_by"], row["edit_note"]),
    }


def _decision(at: datetime | None, actor: str | None, note: str | None) -> dict[str, Any] | None:
    return None if at is None else {"at": instant_text(at), "actor": actor, "note": note}


def _replay(row: Row, replay: Row) -> dict[str, Any]:
    """A series that was followed by another ended dead."""
    is_last = replay["series"] == row["run_series"]
    return {
        "series": replay["series"],
        "at": instant_text(replay["replayed_at"]),
        "actor": replay["actor"],
        "note": replay["note"],
        "run_state": row["run_state"] if is_last else RunState.DEAD.value,
    }
