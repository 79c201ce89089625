"""Views: the rows of query responses, built from the rows of the database."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

from harebell.contract.dead_letter import GroupState
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.json_codec import decode_trusted
from harebell.contract.message import quoted
from harebell.contract.redaction import redact_bytes
from harebell.contract.types import LATEST
from harebell.contract.views import (
    DeadLetterDecision,
    DeadLetterDetail,
    DeadLetterView,
    FailureGroupView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
    ReplayJobWait,
    ReplayView,
)
from harebell.dlq_inspector.model.dead_letter import redact_payload
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState

Row: TypeAlias = Mapping[str, Any]

ALL: Final = "all"
FIRST_PAGE: Final = PageCursor(LATEST, UUID(int=0))  # precedes the newest row of every list
_GROUP_FILTERS: Final = (*GroupState, ALL)


class DeadLetterStateFilter(StrEnum):
    """The states by which a list of dead letters is filtered.

    A dead letter is shown as `resolved` after its run has succeeded. No row has this state.
    """

    OPEN = "open"
    REPLAYED = "replayed"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"
    ALL = "all"

    @classmethod
    def parse(cls, text: str) -> "DeadLetterStateFilter":
        """Return the filter. Raise `InvalidInput` for an unknown state."""
        try:
            return cls(text)
        except ValueError:
            raise _unknown_state(cls, text) from None


# The stored states in which a dead letter with the shown state may be.
STORED: Final[Mapping[DeadLetterStateFilter, Sequence[DeadLetterState]]] = {
    DeadLetterStateFilter.OPEN: (DeadLetterState.OPEN,),
    DeadLetterStateFilter.REPLAYED: (DeadLetterState.REPLAYED,),
    DeadLetterStateFilter.RESOLVED: (DeadLetterState.OPEN, DeadLetterState.REPLAYED),
    DeadLetterStateFilter.DISCARDED: (DeadLetterState.DISCARDED,),
    DeadLetterStateFilter.SUPERSEDED: (DeadLetterState.SUPERSEDED,),
    DeadLetterStateFilter.ALL: tuple(DeadLetterState),
}


def parse_group_filter(text: str) -> GroupState | None:
    """Return the state to filter by, or None for all. Raise `InvalidInput` for another text."""
    if text not in _GROUP_FILTERS:
        raise _unknown_state(_GROUP_FILTERS, text)
    return None if text == ALL else GroupState(text)


def _unknown_state(states: Iterable[str], text: str) -> InvalidInput:
    reason = f"The state must be one of {', '.join(states)}, not {quoted(text)}."
    return InvalidInput(reason, field="state", code="invalid_state")


def dead_letter_view(row: Row) -> DeadLetterView:
    return DeadLetterView(**_dead_letter_fields(row))


def dead_letter_detail(row: Row, replays: Iterable[Row]) -> DeadLetterDetail:
    """Return the whole dead letter. `size` in the payload is the length of an untruncated body."""
    body = row["body"]
    payload = redact_payload(decode_trusted(row["payload"].encode()))  # of an older release
    return DeadLetterDetail(
        **_dead_letter_fields(row),
        payload=payload,
        body=None if body is None else base64.b64encode(redact_bytes(body)).decode(),
        headers=payload.get("headers") if body is not None else None,
        queue=payload.get("queue") if body is not None else None,
        replay_history=[_replay_view(row, replay) for replay in replays],
        root_id=row["root_id"],
        discarded=_decision(row["discarded_at"], row["discarded_by"], row["discard_note"]),
        edited_from=row["edited_from"],
        edited=_decision(row["edited_at"], row["edited_by"], row["edit_note"]),
    )


def _dead_letter_fields(row: Row) -> dict[str, Any]:
    is_run = row["schedule_id"] is not None
    return {
        "id": row["id"],
        "kind": row["kind"],
        "run_id": run_id(row["schedule_id"], row["scheduled_for"]) if is_run else None,
        "key": row["key"],
        "tenant": row["tenant"],
        "reason": row["reason"],
        "error_code": row["error_code"],
        "error": row["error"],
        "attempts": row["attempts"],
        "dead_at": row["dead_at"],
        "state": row["shown_state"],
        "replays": row["replays"],
        "run_state": row["run_state"],
        "group": row["group_id"],
    }


def _decision(
    at: datetime | None, actor: str | None, note: str | None
) -> DeadLetterDecision | None:
    return None if at is None else DeadLetterDecision(at=at, actor=actor, note=note)


def _replay_view(row: Row, replay: Row) -> ReplayView:
    # a replay that another replay follows has ended in `dead`
    is_last = row["run_state"] is None or replay["replay_number"] == row["run_replay_number"]
    return ReplayView(
        replay_number=replay["replay_number"],
        at=replay["replayed_at"],
        actor=replay["actor"],
        note=replay["note"],
        run_state=row["run_state"] if is_last else RunState.DEAD.value,
    )


def failure_group_view(row: Row) -> FailureGroupView:
    is_muted = row["shown_state"] == GroupState.MUTED
    return FailureGroupView(
        id=row["id"],
        state=row["shown_state"],
        open=row["open"],
        dead_letters=row["dead_letters"],
        trend=trend(row["last_hour"], row["hour_before"]),
        last_hour=row["last_hour"],
        hour_before=row["hour_before"],
        first_at=row["first_at"],
        last_at=row["last_at"],
        target=row["target"],
        error_code=row["error_code"],
        message=row["message"],
        note=row["note"],
        changed_by=row["changed_by"],
        changed_at=row["changed_at"],
        muted_until=row["muted_until"] if is_muted else None,
    )


def trend(last_hour: int, hour_before: int) -> str:
    """Return one word for the change of the number of dead letters."""
    if not last_hour:
        return "quiet"
    if last_hour > hour_before:
        return "rising"
    return "falling" if last_hour < hour_before else "steady"


def replay_job_view(row: Row) -> ReplayJobView:
    return ReplayJobView(**_replay_job_fields(row))


def replay_job_detail(row: Row, waiting_for: ReplayJobWait | None) -> ReplayJobDetail:
    request = decode_trusted(row["request"].encode())
    return ReplayJobDetail(**_replay_job_fields(row), request=request, waiting_for=waiting_for)


def _replay_job_fields(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "state": row["state"],
        "reason": row["reason"],
        "total": row["total"],
        "taken": row["taken"],
        "replayed": row["replayed"],
        "succeeded": row["succeeded"],
        "failed": row["failed"],
        "rejected": row["taken"] - row["replayed"],
        "remaining": row["total"] - row["taken"],
        "actor": row["actor"],
        "note": row["note"],
        "changed_by": row["changed_by"],
        "created_at": row["created_at"],
        "changed_at": row["changed_at"],
        "finished_at": row["finished_at"],
    }


def replay_item_view(row: Row) -> ReplayItemView:
    return ReplayItemView(
        position=row["position"],
        id=row["dead_letter_id"],
        status=row["status"],
        outcome=row["outcome"],
    )
