"""What a person sees of a group of failures, and which groups a list can be asked for."""

from collections.abc import Mapping
from typing import Any, Final

from harebell.contract.desk import GroupState
from harebell.contract.errors import InvalidInput
from harebell.contract.scalars import instant_text

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
        "letters": row["letters"],
        "trend": trend(row["last_hour"], row["hour_before"]),
        **{name: row[name] for name in ("last_hour", "hour_before")},
        "first_at": instant_text(row["first_at"]),
        "last_at": instant_text(row["last_at"]),
        **{name: row[name] for name in ("target", "error_code", "message", "note", "changed_by")},
        "changed_at": row["changed_at"] and instant_text(row["changed_at"]),
        "muted_until": instant_text(row["muted_until"]) if muted else None,
    }
