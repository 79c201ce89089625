"""What a command to the desk may do with each letter, told from the letter alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import orjson

from harebell.contract.codec import decode_own
from harebell.contract.desk import GroupState
from harebell.contract.identity import RunKey
from harebell.contract.ticket import TARGET
from harebell.dlq_inspector.core.letter import Kind


class LetterState(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DROPPED = "dropped"
    EDITED = "edited"  # a copy is in its place


class Status(StrEnum):
    """What became of one id of a command."""

    REPLAYED = "replayed"
    DROPPED = "dropped"
    ALREADY_REPLAYED = "already_replayed"
    NOT_REPLAYABLE = "not_replayable"  # no run, dropped, or its run is no longer dead
    EDITED = "edited"  # this is the copy
    NOT_EDITABLE = "not_editable"  # no run, or off the desk
    IMPORTED = "imported"
    PRESENT = "present"  # kept before
    NOTED = "noted"  # a group
    NOT_FOUND = "not_found"  # unknown, or another tenant's: the same, seen from here


@dataclass(frozen=True, slots=True)
class Held:
    """A letter that the command has locked. `unstarted`: its replay still waits to be claimed."""

    id: UUID
    kind: Kind
    state: LetterState
    run: RunKey | None
    series: int | None
    unstarted: bool
    target: str | None = None  # JSON: of an edited copy
    override: str | None = None  # JSON: of its run, as it is

    @property
    def next_override(self) -> str | None:
        """Of the run, when it is replayed: as executors write it, who compare it as text."""
        if self.target is None:
            return self.override
        others = {} if self.override is None else decode_own(self.override.encode())
        return orjson.dumps({**others, TARGET: decode_own(self.target.encode())}).decode()

    @property
    def is_open(self) -> bool:
        return self.state is LetterState.OPEN

    @property
    def is_replayable(self) -> bool:
        """As far as the letter says; the run's row has the last word."""
        return self.is_open and self.kind is Kind.RUN


def replay_results(
    ids: Iterable[UUID], held: Mapping[UUID, Held], begun: frozenset[UUID]
) -> dict[str, str]:
    """`begun`: the letters whose run was staged again by this command."""

    def status(letter: Held | None) -> Status:
        if letter is None:
            return Status.NOT_FOUND
        if letter.id in begun:
            return Status.REPLAYED
        already = letter.state is LetterState.REPLAYED
        return Status.ALREADY_REPLAYED if already else Status.NOT_REPLAYABLE

    return {str(id_): status(held.get(id_)).value for id_ in ids}


def drop_results(ids: Iterable[UUID], held: Mapping[UUID, Held]) -> dict[str, str]:
    """Dropped twice is dropped; a replayed letter has left the desk already."""

    def status(letter: Held | None) -> Status:
        if letter is None:
            return Status.NOT_FOUND
        already = letter.state is LetterState.REPLAYED
        return Status.ALREADY_REPLAYED if already else Status.DROPPED

    return {str(id_): status(held.get(id_)).value for id_ in ids}


def group_results(
    ids: Iterable[UUID], changed: frozenset[UUID], state: GroupState | None
) -> dict[str, str]:
    """`state`: the one that all came into; None where they were only noted."""
    done = Status.NOTED if state is None else state
    return {str(id_): (done if id_ in changed else Status.NOT_FOUND).value for id_ in ids}
