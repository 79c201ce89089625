"""What a command to the desk may do with each letter, told from the letter alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import orjson

from harebell.contract.dead_letter import GroupState
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import TARGET
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind


class DeadLetterState(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"  # a copy is in its place


class ResultStatus(StrEnum):
    """What became of one id of a command."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ALREADY_REPLAYED = "already_replayed"
    NOT_REPLAYABLE = "not_replayable"  # no run, dropped, or its run is no longer dead
    EDITED = "edited"  # this is the copy
    NOT_EDITABLE = "not_editable"  # no run, or off the desk
    IMPORTED = "imported"
    ALREADY_PRESENT = "already_present"  # kept before
    NOTED = "noted"  # a group
    NOT_FOUND = "not_found"  # unknown, or another tenant's: the same, seen from here


@dataclass(frozen=True, slots=True)
class LockedDeadLetter:
    """A letter that the command has locked. `unstarted`: its replay still waits to be claimed."""

    id: UUID
    kind: DeadLetterKind
    state: DeadLetterState
    run: RunKey | None
    replay_number: int | None
    unstarted: bool
    target: str | None = None  # JSON: of an edited copy
    override: str | None = None  # JSON: of its run, as it is

    @property
    def next_override(self) -> str | None:
        """Of the run, when it is replayed: as executors write it, who compare it as text."""
        if self.target is None:
            return self.override
        others = {} if self.override is None else decode_trusted(self.override.encode())
        return orjson.dumps({**others, TARGET: decode_trusted(self.target.encode())}).decode()

    @property
    def is_open(self) -> bool:
        return self.state is DeadLetterState.OPEN

    @property
    def is_replayable(self) -> bool:
        """As far as the letter says; the run's row has the last word."""
        return self.is_open and self.kind is DeadLetterKind.RUN


def replay_results(
    ids: Iterable[UUID], held: Mapping[UUID, LockedDeadLetter], begun: frozenset[UUID]
) -> dict[str, str]:
    """`begun`: the letters whose run was staged again by this command."""

    def status(letter: LockedDeadLetter | None) -> ResultStatus:
        if letter is None:
            return ResultStatus.NOT_FOUND
        if letter.id in begun:
            return ResultStatus.REPLAYED
        already = letter.state is DeadLetterState.REPLAYED
        return ResultStatus.ALREADY_REPLAYED if already else ResultStatus.NOT_REPLAYABLE

    return {str(id_): status(held.get(id_)).value for id_ in ids}


def discard_results(ids: Iterable[UUID], held: Mapping[UUID, LockedDeadLetter]) -> dict[str, str]:
    """Dropped twice is dropped; a replayed letter has left the desk already."""

    def status(letter: LockedDeadLetter | None) -> ResultStatus:
        if letter is None:
            return ResultStatus.NOT_FOUND
        already = letter.state is DeadLetterState.REPLAYED
        return ResultStatus.ALREADY_REPLAYED if already else ResultStatus.DISCARDED

    return {str(id_): status(held.get(id_)).value for id_ in ids}


def group_results(
    ids: Iterable[UUID], changed: frozenset[UUID], state: GroupState | None
) -> dict[str, str]:
    """`state`: the one that all came into; None where they were only noted."""
    done = ResultStatus.NOTED if state is None else state
    return {str(id_): (done if id_ in changed else ResultStatus.NOT_FOUND).value for id_ in ids}
