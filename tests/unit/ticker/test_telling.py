"""What is told of runs after a commit, which is also what is counted."""

from datetime import UTC, datetime, timedelta

from tests.schedules import ID
from tests.ticking import Ticking

from harebell.contract.identity import RunKey
from harebell.contract.names import Lane
from harebell.kernel.ledger import End, NotOwed, Reason, RunState
from harebell.kernel.routing import Routed
from harebell.ticker import planning
from harebell.ticker.book import Book, Entry
from harebell.ticker.owing import place_of
from harebell.ticker.saving import Saved
from harebell.ticker.telling import progress_facts, withdrawn_facts

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
FIRST, SECOND = (RunKey(NOW + timedelta(minutes=n), ID) for n in (1, 2))


def entry() -> Entry:
    ticking = Ticking(NOW)
    ticking.put({"every": "1m"})
    assert ticking.entry is not None
    return ticking.entry


def saved(*advances: planning.Advance, again: RunKey | None = None) -> Saved:
    tickets = [] if again is None else [Routed(again, 3, NOW, "default", Lane.NORMAL, 5, b"{}")]
    return Saved(tickets, advances, [])


def test_what_is_withdrawn_and_owed_again_in_one_go_has_not_ended() -> None:
    book = Book(entries={ID: entry()})
    book.cancelled = {FIRST: Reason.SUPERSEDED, SECOND: Reason.SUPERSEDED}

    (fact,) = withdrawn_facts(book, saved(again=FIRST), NOW)

    assert fact.event["subject"] == str(SECOND)
    assert fact.end == End(RunState.CANCELLED, Reason.SUPERSEDED)


def test_a_held_run_that_a_person_resolved_has_ended_and_one_to_be_tried_again_has_not() -> None:
    book = Book(entries={ID: entry()})
    book.resolved = {FIRST: RunState.SKIPPED, SECOND: RunState.STAGED}

    (fact,) = withdrawn_facts(book, saved(), NOW)

    assert fact.verb == "run.skipped"
    assert fact.end == End(RunState.SKIPPED, Reason.REQUESTED)


def test_a_row_that_stands_for_many_instants_counts_each() -> None:
    standing = entry()
    place = place_of(standing.version)
    missed = NotOwed(FIRST, place, NOW + timedelta(hours=9), 540, Reason.CATCH_UP)

    (fact,) = progress_facts(saved(planning.Advance(standing, standing, not_owed=[missed])), NOW)

    assert fact.end == End(RunState.SKIPPED, Reason.CATCH_UP, 540)
