"""Imports: the id of an imported dead letter, which never takes the id of a later report."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.dead_letter import DeadLetter, with_separate_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """A run of the ledger. `is_own` states that the run belongs to the importing tenant."""

    is_own: bool
    is_dead: bool
    replay_number: int

    def has_died_with(self, replay_number: int | None) -> bool:
        """Return whether a service has reported the dead letter of this replay number."""
        if replay_number is None or replay_number > self.replay_number:
            return False
        return self.is_dead or replay_number < self.replay_number


def to_insert(
    imported: DeadLetter, known: Mapping[RunKey, KnownRun], present: Collection[UUID]
) -> DeadLetter | None:
    """Return the dead letter with the id to insert, or None if its tenant already has it.

    Only a run that has already died keeps the id of a report: a later report then exists already.
    """
    if imported.id in present or imported.older_id in present:
        return None
    run = None if imported.run is None else known.get(imported.run)
    if run is not None and run.is_own and run.has_died_with(imported.replay_number):
        return imported
    return with_separate_id(imported)


def names_foreign_run(imported: DeadLetter, known: Mapping[RunKey, KnownRun]) -> bool:
    """Return whether the ledger shows that the run belongs to another tenant."""
    run = None if imported.run is None else known.get(imported.run)
    return run is not None and not run.is_own
