"""What a person sees of a replay of many: how far it is, and what came of each letter."""

from collections.abc import Mapping
from typing import Any

from harebell.contract.codec import decode_trusted
from harebell.contract.scalars import instant_text

Row = Mapping[str, Any]


def shown_job(row: Row) -> dict[str, Any]:
    """A line of the list; `refused`: taken, and could not be replayed any more."""
    return {
        "id": str(row["id"]),
        "state": row["state"],
        "reason": row["reason"],
        **{name: row[name] for name in ("total", "taken", "replayed", "succeeded", "failed")},
        "refused": row["taken"] - row["replayed"],
        "waiting": row["total"] - row["taken"],
        **{name: row[name] for name in ("actor", "note", "changed_by")},
        **{name: _instant(row[name]) for name in ("created_at", "changed_at", "finished_at")},
    }


def whole_job(row: Row) -> dict[str, Any]:
    return {**shown_job(row), "asked": decode_trusted(row["asked"].encode())}


def shown_item(row: Row) -> dict[str, Any]:
    """`status`: waiting, or what became of the letter; `outcome`: how its run ended."""
    return {
        "place": row["place"],
        "id": str(row["letter_id"]),
        "status": row["status"],
        "outcome": row["outcome"],
    }


def _instant(value: Any) -> str | None:  # noqa: ANN401  # a column
    return None if value is None else instant_text(value)
