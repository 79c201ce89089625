"""All breakers of a dispatcher: who is held, who is not, and what others are told."""

from datetime import datetime, timedelta
from typing import Any

from tests.tickets import NINE, after, routed

from harebell.contract.breakers import BreakerFact, BreakerState, Standing, StandingBreaker
from harebell.dispatcher.breaker import Rule
from harebell.dispatcher.breakers import BREAKER, MAX_WATCHED, Breakers
from harebell.dispatcher.gates import Hold

ECHO = "task:harebell.echo"  # whom the tickets of tests call
OTHER = "http:acme.example"
RULE = Rule(attempts=2, rest=timedelta(seconds=30), probes=1)


def down(*names: str, at: datetime = NINE) -> Breakers:
    breakers = Breakers(RULE)
    for name in names:
        for _ in range(RULE.attempts):
            breakers.judge(name, at, healthy=False)
    return breakers


def standing(as_of: datetime = NINE, **fields: Any) -> Standing:
    return Standing(as_of=as_of, breakers=[StandingBreaker(downstream=ECHO, **fields)])


def test_s113_runs_to_whom_it_is_open_are_held_and_others_leave() -> None:
    assert down(ECHO).held(routed(), after(1)) == Hold(BREAKER, timedelta(seconds=29))
    assert down(OTHER).held(routed(), after(1)) is None


def test_it_is_idle_until_something_is_held() -> None:
    breakers = down()
    breakers.judge(ECHO, NINE, healthy=False)
    before = breakers.is_idle(NINE)
    breakers.judge(ECHO, NINE, healthy=False)

    assert before
    assert not breakers.is_idle(NINE)


def test_who_has_not_failed_is_not_watched() -> None:
    breakers = Breakers(RULE)

    breakers.judge(ECHO, NINE, healthy=True)

    assert not breakers.watches


def test_only_so_many_are_watched() -> None:
    breakers = down(*(f"task:{number}" for number in range(MAX_WATCHED)))

    breakers.judge(ECHO, NINE, healthy=False)
    breakers.judge(ECHO, NINE, healthy=False)

    assert breakers.held(routed(), NINE) is None


def test_each_transition_is_told_once() -> None:
    breakers = down(ECHO)

    (told,) = breakers.changes()

    assert (told.downstream, told.state, told.since) == (ECHO, BreakerState.OPEN, NINE)
    assert (told.failed, told.attempts) == (2, 2)
    assert breakers.changes() == []


def test_what_another_dispatcher_tells_is_followed_and_not_told_again() -> None:
    breakers = Breakers(RULE)

    breakers.hear(BreakerFact(downstream=ECHO, state=BreakerState.OPEN, since=NINE))

    assert breakers.held(routed(), after(1)) is not None
    assert breakers.changes() == []


def test_s113_what_is_forced_open_is_held_until_then_however_healthy() -> None:
    breakers = Breakers(RULE)
    breakers.settle(standing(forced="open", forced_until=after(10)))

    assert breakers.held(routed(), after(4)) == Hold(BREAKER, timedelta(seconds=6))
    assert breakers.held(routed(), after(10)) is None  # whether or not a ticker says so


def test_s113_what_is_forced_closed_passes_however_it_fails() -> None:
    breakers = down(ECHO)
    breakers.settle(standing(forced="closed"))

    assert breakers.held(routed(), after(1)) is None


def test_s113_what_is_no_longer_forced_is_as_attempts_have_it() -> None:
    breakers = down(ECHO)
    breakers.settle(standing(forced="closed"))

    breakers.settle(Standing(as_of=after(1)))

    assert breakers.held(routed(), after(2)) is not None


def test_an_older_word_does_not_undo_a_newer_one() -> None:
    breakers = Breakers(RULE)
    breakers.settle(standing(after(1), forced="open"))

    breakers.settle(Standing(as_of=NINE))

    assert breakers.held(routed(), after(2)) is not None


def test_a_dispatcher_that_starts_takes_over_what_is_stored() -> None:
    breakers = Breakers(RULE)

    breakers.settle(standing(after(5), state="open", since=NINE))

    assert breakers.held(routed(), after(6)) == Hold(BREAKER, timedelta(seconds=24))


def test_what_was_not_stored_is_told_again() -> None:
    breakers = down(ECHO)
    lost = breakers.changes()

    breakers.settle(Standing(as_of=after(5)))

    assert breakers.changes() == lost


def test_where_only_people_decide_failures_open_nothing() -> None:
    breakers = Breakers(RULE, automatic=False)
    for _ in range(9):
        breakers.judge(ECHO, NINE, healthy=False)

    assert breakers.held(routed(), after(1)) is None


def test_what_it_shows_is_what_is_done() -> None:
    breakers = down(ECHO, OTHER)
    breakers.settle(standing(forced="closed"))

    assert dict(breakers.standing(after(1))) == {OTHER: BreakerState.OPEN}


def test_the_quiet_are_forgotten_and_the_open_are_not() -> None:
    breakers = down(ECHO)
    breakers.judge(OTHER, NINE, healthy=False)

    breakers.tidy(after(86_400))

    assert breakers.held(routed(), after(1)) is not None
    assert [fact.downstream for fact in breakers.changes()] == [ECHO]
