"""What a person sees of a group of failures, and which groups a list can be asked for."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from harebell.contract.dead_letter import GroupState
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.json_codec import decode_trusted
from harebell.contract.types import LATEST, instant_text
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState

ALL: Final = "all"
_STATES: Final = (*GroupState, ALL)


def group_filter(text: str) -> str | None:
    """The state to look for; None for all. Raises `Malformed`."""
    if text not in _STATES:
        reason = f"must be one of {', '.join(_STATES)}"
        raise InvalidInput(reason, field="state", code="invalid_state")
    return None if text == ALL else text


def trend(last_hour: int, hour_before: int) -> str:
    """In a word, whether it is still happening."""
    if not last_hour:
        return "quiet"
    if last_hour > hour_before:
        return "rising"
    return "falling" if last_hour < hour_before else "steady"


def shown_group(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the list."""
    muted = row["shown_state"] == GroupState.MUTED
    return {
        "id": str(row["id"]),
        "state": row["shown_state"],
        "open": row["open"],
        "dead_letters": row["dead_letters"],
        "trend": trend(row["last_hour"], row["hour_before"]),
        **{name: row[name] for name in ("last_hour", "hour_before")},
        "first_at": instant_text(row["first_at"]),
        "last_at": instant_text(row["last_at"]),
        **{name: row[name] for name in ("target", "error_code", "message", "note", "changed_by")},
        "changed_at": row["changed_at"] and instant_text(row["changed_at"]),
        "muted_until": instant_text(row["muted_until"]) if muted else None,
    }


Row = Mapping[str, Any]


def shown_job(row: Row) -> dict[str, Any]:
    """A line of the list; `refused`: taken, and could not be replayed any more."""
    return {
        "id": str(row["id"]),
        "state": row["state"],
        "reason": row["reason"],
        **{name: row[name] for name in ("total", "taken", "replayed", "succeeded", "failed")},
        "rejected": row["taken"] - row["replayed"],
        "remaining": row["total"] - row["taken"],
        **{name: row[name] for name in ("actor", "note", "changed_by")},
        **{name: _instant(row[name]) for name in ("created_at", "changed_at", "finished_at")},
    }


def whole_job(row: Row) -> dict[str, Any]:
    return {**shown_job(row), "request": decode_trusted(row["request"].encode())}


def shown_item(row: Row) -> dict[str, Any]:
    """`status`: waiting, or what became of the letter; `outcome`: how its run ended."""
    return {
        "position": row["position"],
        "id": str(row["dead_letter_id"]),
        "status": row["status"],
        "outcome": row["outcome"],
    }


def _instant(value: Any) -> str | None:  # noqa: ANN401  # a column
    return None if value is None else instant_text(value)


class DeadLetterStateFilter(StrEnum):
    """`resolved` is no state of a letter: its run has succeeded since it died."""

    OPEN = "open"
    REPLAYED = "replayed"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"
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
    DeadLetterStateFilter.DISCARDED: (DeadLetterState.DISCARDED,),
    DeadLetterStateFilter.SUPERSEDED: (DeadLetterState.SUPERSEDED,),
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
        "payload": dict(story),
        "body": None if body is None else base64.b64encode(body).decode(),
        "headers": story.get("headers") if body is not None else None,
        "queue": story.get("queue") if body is not None else None,
        "replay_history": [_replay(row, replay) for replay in replays],
        "root_id": row["root_id"] and str(row["root_id"]),
        "discarded": _decision(row["discarded_at"], row["discarded_by"], row["discard_note"]),
        "edited_from": row["edited_from"] and str(row["edited_from"]),
        "edited": _decision(row["edited_at"], row["edited_by"], row["edit_note"]),
    }


def _decision(at: datetime | None, actor: str | None, note: str | None) -> dict[str, Any] | None:
    return None if at is None else {"at": instant_text(at), "actor": actor, "note": note}


def _replay(row: Row, replay: Row) -> dict[str, Any]:
    """A series that was followed by another ended dead."""
    is_last = replay["replay_number"] == row["run_replay_number"]
    return {
        "replay_number": replay["replay_number"],
        "at": instant_text(replay["replayed_at"]),
        "actor": replay["actor"],
        "note": replay["note"],
        "run_state": row["run_state"] if is_last else RunState.DEAD.value,
    }
