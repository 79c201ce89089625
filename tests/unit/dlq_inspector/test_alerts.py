"""An alert says in one line what is wrong, where and since when."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from harebell.contract.events import Event, LivenessEventData, make_event
from harebell.contract.message import parse
from harebell.dlq_inspector.model.alerts import DeadLetterSpike, StalledReplayJob, headline

TWO = datetime(2026, 11, 20, 14, tzinfo=UTC)
ID = UUID("0b6f3cde-6c1f-5f7a-8a49-3c1a4a1f7d12")


def growth(group: UUID | None) -> Event:
    grown = DeadLetterSpike(
        tenant="acme",
        letters=11,
        since=TWO.replace(microsecond=123_000),
        group=group,
        target="http POST https://acme.example",
        error_code="http_503",
    )
    return parse(Event, grown.event(TWO))


@pytest.mark.requirement("S117")
def test_dead_letters_that_grow_are_told_with_what_most_of_them_are() -> None:
    assert headline(growth(ID)) == (
        "acme: 11 new dead letters since 2026-11-20T14:00:00Z, "
        "most of them http_503 at http POST https://acme.example"
    )
    assert headline(growth(None)) == "acme: 11 new dead letters since 2026-11-20T14:00:00Z"


@pytest.mark.requirement("S117")
def test_a_replay_that_paused_by_itself_is_told_with_the_reason() -> None:
    stall = StalledReplayJob(
        tenant="acme",
        job=ID,
        state="paused",
        reason="version 2 cannot be read",
        since=TWO,
        waiting=40,
        undecided=0,
    )

    assert headline(parse(Event, stall.event(TWO))) == (
        f"acme: replay {ID} is paused and has not moved since 2026-11-20T14:00:00Z; "
        "40 letters wait, 0 runs have not ended: version 2 cannot be read"
    )


@pytest.mark.requirement("S117")
def test_what_has_no_words_of_its_own_is_told_by_its_type() -> None:
    fact = LivenessEventData(component="ticker", since=TWO)
    silence = make_event("acme", "liveness.missed", fact, id_="x", subject="ticker", at=TWO)

    assert headline(parse(Event, silence)) == "/harebell/acme: harebell.watch.missed.v1 ticker"
