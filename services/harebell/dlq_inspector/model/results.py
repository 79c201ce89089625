"""Results of commands: the effect of a command on each dead letter or failure group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import orjson

from harebell.contract.dead_letter import GroupState
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import OVERRIDE_TARGET, OVERRIDE_TRACE
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind


class DeadLetterState(StrEnum):
    """The stored state of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"  # an edited copy replaces the dead letter


class ResultStatus(StrEnum):
    """The result of a command for one id."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ALREADY_REPLAYED = "already_replayed"
    NOT_REPLAYABLE = "not_replayable"  # no command or run, not open, or the run is not dead
    EDITED = "edited"  # the id is the id of the copy
    NOT_EDITABLE = "not_editable"  # a message, or not open
    IMPORTED = "imported"
    ALREADY_PRESENT = "already_present"  # stored by an earlier message or import
    NOTED = "noted"  # the id is the id of a group
    NOT_FOUND = "not_found"  # unknown, or of another tenant, which the caller must not learn


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDeadLetter:
    """A dead letter that the command has locked, with the properties of its run.

    `is_unstarted` states that a replay has staged the run and that no executor has claimed it.
    """

    id: UUID
    kind: DeadLetterKind
    state: DeadLetterState
    run: RunKey | None
    replay_number: int | None
    is_unstarted: bool
    target: str | None = None  # JSON, only of an edited copy
    override: str | None = None  # JSON, the present override of the run

    def next_override(self, trace: Mapping[str, str] | None = None) -> str | None:
        """Return the override of the replayed run, with the trace of the command that replays it.

        Executors compare an override as text, so the result has the form that executors write.
        """
        if self.target is None and trace is None:
            return self.override
        fields = {} if self.override is None else decode_trusted(self.override.encode())
        if self.target is not None:
            fields[OVERRIDE_TARGET] = decode_trusted(self.target.encode())
        if trace is not None:
            fields[OVERRIDE_TRACE] = trace
        return orjson.dumps(fields).decode()

    @property
    def is_open(self) -> bool:
        return self.state is DeadLetterState.OPEN

    @property
    def is_replayable(self) -> bool:
        """Return whether the run of the dead letter may be replayed, which its row decides."""
        return self.is_open and self.kind is DeadLetterKind.RUN


def replay_results(
    ids: Iterable[UUID], locked: Mapping[UUID, LockedDeadLetter], replayed: frozenset[UUID]
) -> dict[str, str]:
    """Return the result for each id. `replayed` contains those of runs and commands."""

    def status(dead_letter: LockedDeadLetter | None) -> ResultStatus:
        if dead_letter is None:
            return ResultStatus.NOT_FOUND
        if dead_letter.id in replayed:
            return ResultStatus.REPLAYED
        if dead_letter.state is DeadLetterState.REPLAYED:
            return ResultStatus.ALREADY_REPLAYED
        return ResultStatus.NOT_REPLAYABLE

    return {str(id_): status(locked.get(id_)).value for id_ in ids}


def discard_results(ids: Iterable[UUID], locked: Mapping[UUID, LockedDeadLetter]) -> dict[str, str]:
    """Return the result for each id. A second discard has the same result as the first."""

    def status(dead_letter: LockedDeadLetter | None) -> ResultStatus:
        if dead_letter is None:
            return ResultStatus.NOT_FOUND
        if dead_letter.state is DeadLetterState.REPLAYED:
            return ResultStatus.ALREADY_REPLAYED
        return ResultStatus.DISCARDED

    return {str(id_): status(locked.get(id_)).value for id_ in ids}


def group_results(
    ids: Iterable[UUID], updated: frozenset[UUID], state: GroupState | None
) -> dict[str, str]:
    """Return the new state of each updated group, or `noted` if the command sets no state."""
    done = ResultStatus.NOTED if state is None else state
    return {str(id_): (done if id_ in updated else ResultStatus.NOT_FOUND).value for id_ in ids}
