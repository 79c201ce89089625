"""An import keeps the id of a report only if the report has already been stored."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from harebell.contract.dead_letter import ExportedDeadLetter
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, dead_run_id, imported_dead_letter_id, older_dead_run_id
from harebell.dlq_inspector.model.dead_letter import (
    MAX_CLOCK_SKEW,
    DeadLetter,
    import_dead_letter,
)
from harebell.dlq_inspector.model.imports import KnownRun, names_foreign_run, to_insert

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN = RunKey(NOW, UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"))
REPORTED = dead_run_id("acme", str(RUN), 1)
SEPARATE = imported_dead_letter_id(REPORTED)

pytestmark = pytest.mark.requirement("P4")


def imported(replay_number: int = 1) -> DeadLetter:
    payload = {
        "run_id": str(RUN),
        "tenant": "acme",
        "schedule_id": str(RUN.schedule_id),
        "scheduled_for": NOW.isoformat(),
        "version": 1,
        "replay_number": replay_number,
        "reason": "attempts_exhausted",
        "error_code": "http_503",
        "dead_at": NOW.isoformat(),
        "target": {"task": {"name": "acme.report"}},
        "attempts": [],
    }
    return import_dead_letter(ExportedDeadLetter(kind="run", payload=payload), NOW)


def run(*, is_own: bool = True, is_dead: bool = True, replay_number: int = 1) -> KnownRun:
    return KnownRun(is_own=is_own, is_dead=is_dead, replay_number=replay_number)


@pytest.mark.parametrize(
    ("known", "id_"),
    [
        (run(), REPORTED),
        (run(is_dead=False, replay_number=2), REPORTED),
        (run(is_dead=False), SEPARATE),  # the run may still die with this replay number
        (run(replay_number=0), SEPARATE),
        (run(is_own=False), SEPARATE),
        (None, SEPARATE),
    ],
)
def test_id_of_an_import_depends_on_the_run(known: KnownRun | None, id_: UUID) -> None:
    runs = {} if known is None else {RUN: known}

    stored = to_insert(imported(), runs, frozenset())

    assert stored is not None
    assert (stored.id, stored.is_imported) == (id_, True)


@pytest.mark.parametrize("body", ["?", "ä"])
def test_import_with_a_body_that_is_not_base64_is_rejected(body: str) -> None:
    exported = ExportedDeadLetter(kind="message", payload={}, body=body)

    with pytest.raises(InvalidInput, match="base64"):
        import_dead_letter(exported, NOW)


def test_import_with_a_time_of_death_in_the_future_is_rejected() -> None:
    exported = ExportedDeadLetter(kind="run", payload=dict(imported().payload))

    assert import_dead_letter(exported, NOW - MAX_CLOCK_SKEW).dead_at == NOW
    with pytest.raises(InvalidInput) as refused:
        import_dead_letter(exported, NOW - MAX_CLOCK_SKEW - timedelta(milliseconds=1))
    assert (refused.value.code, refused.value.field) == ("future_dead_at", "dead_at")


@pytest.mark.parametrize("present", [REPORTED, older_dead_run_id(str(RUN), 1)])
def test_import_of_a_present_dead_letter_changes_nothing(present: UUID) -> None:
    assert to_insert(imported(), {RUN: run()}, {present}) is None


def test_run_of_another_tenant_is_foreign() -> None:
    assert names_foreign_run(imported(), {RUN: run(is_own=False)})
    assert not names_foreign_run(imported(), {RUN: run()})
    assert not names_foreign_run(imported(), {})
