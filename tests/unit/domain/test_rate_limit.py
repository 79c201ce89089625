"""The rate limit rule: reservations, starts and keys."""

from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, ticket

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.contract.schedule import Definition
from harebell.contract.ticket import Ticket
from harebell.domain.rate_limit import (
    RateLimitDecision,
    RateLimitState,
    admit,
    padded_window,
    rate_limit_key,
    reserve,
    start_slack,
)

FIFTY = RateLimit(per=RateLimitScope.TARGET, starts=50, within=timedelta(seconds=1))
ONE_AN_HOUR = RateLimit(per=RateLimitScope.SCHEDULE, starts=1, within=timedelta(hours=1))


def calling(url: str, tenant: str = "acme") -> Ticket:
    made = ticket()
    work = {**made.run_spec.model_dump(by_alias=True), "tenant": tenant}
    work["target"] = {"http": {"url": url}}
    return parse(Ticket, {**made.model_dump(), "run_spec": work})


@pytest.mark.requirement("S70")
def test_limit_per_target_counts_all_runs_of_one_host() -> None:
    one, other = calling("https://acme.example/a"), calling("https://acme.example/b?c")

    assert rate_limit_key(one, FIFTY) == rate_limit_key(other, FIFTY)
    assert rate_limit_key(one, FIFTY) != rate_limit_key(calling("https://else.example/a"), FIFTY)


@pytest.mark.requirement("S70")
def test_tenants_and_different_limits_have_different_keys() -> None:
    mine = calling("https://acme.example/a")
    theirs = calling("https://acme.example/a", tenant="other")
    fewer = FIFTY.model_copy(update={"starts": 49})

    assert (
        len(
            {
                rate_limit_key(mine, FIFTY),
                rate_limit_key(theirs, FIFTY),
                rate_limit_key(mine, fewer),
            }
        )
        == 3
    )


@pytest.mark.requirement("S70")
def test_limit_per_schedule_counts_one_schedule() -> None:
    one, other = ticket(1), ticket(2)

    assert rate_limit_key(one, ONE_AN_HOUR) != rate_limit_key(other, ONE_AN_HOUR)


@pytest.mark.requirement("S70")
def test_reserve_returns_the_next_free_time() -> None:
    tally, first = admit(RateLimitState(), ONE_AN_HOUR, NINE)
    tally, second = admit(tally, ONE_AN_HOUR, NINE + timedelta(minutes=1))
    tally, third = reserve(tally, ONE_AN_HOUR, NINE + timedelta(minutes=2))

    assert first == RateLimitDecision(NINE, is_allowed=True)
    assert second == RateLimitDecision(NINE + padded_window(ONE_AN_HOUR), is_allowed=False)
    assert third == RateLimitDecision(second.at + padded_window(ONE_AN_HOUR), is_allowed=False)
    assert tally.starts == (NINE,)


@pytest.mark.requirement("S70")
def test_run_that_is_not_admitted_gets_a_reservation_after_the_others() -> None:
    reserved = NINE + timedelta(hours=3)
    state = RateLimitState(reservations=(reserved,), starts=(NINE,))

    state, decision = admit(state, ONE_AN_HOUR, NINE + timedelta(minutes=1))

    at = reserved + padded_window(ONE_AN_HOUR)
    assert decision == RateLimitDecision(at, is_allowed=False)
    assert state.reservations == (at,)


@pytest.mark.requirement("S70")
def test_admit_allows_a_start_within_the_slack() -> None:
    tally, _ = admit(RateLimitState(), ONE_AN_HOUR, NINE)
    soon = NINE + padded_window(ONE_AN_HOUR)

    tally, told = admit(tally, ONE_AN_HOUR, soon - start_slack(ONE_AN_HOUR))

    assert told == RateLimitDecision(soon, is_allowed=True)
    assert tally.starts == (soon,)


def test_state_expires_after_its_last_window() -> None:
    tally, _ = admit(RateLimitState(), ONE_AN_HOUR, NINE)

    assert RateLimitState().expires_at(ONE_AN_HOUR) is None
    assert tally.expires_at(ONE_AN_HOUR) == NINE + padded_window(ONE_AN_HOUR)


@pytest.mark.requirement("S70")
@pytest.mark.parametrize(
    ("limit", "field"),
    [
        ({"per": "tenant", "starts": 1, "within": "1s"}, "rate_limit.per"),
        ({"starts": 1, "within": "1s"}, "rate_limit.per"),
        ({"per": "target", "starts": 0, "within": "1s"}, "rate_limit.starts"),
        ({"per": "target", "starts": 1001, "within": "1s"}, "rate_limit.starts"),
        ({"per": "target", "starts": 1, "within": "999ms"}, "rate_limit.within"),
        ({"per": "target", "starts": 1, "within": "25h"}, "rate_limit.within"),
        ({"per": "target", "starts": 1, "within": "1s", "burst": 2}, "rate_limit.burst"),
    ],
)
def test_invalid_rate_limit_is_rejected_with_its_field(limit: dict[str, Any], field: str) -> None:
    body = {"when": {"every": "1m"}, "target": {"task": {"name": "echo"}}, "rate_limit": limit}

    with pytest.raises(InvalidInput) as refused:
        parse(Definition, body)

    assert refused.value.field == field
