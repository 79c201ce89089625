"""What a limit counts together, and when it says nothing any more."""

from datetime import timedelta
from typing import Any

import pytest
from tests.tickets import NINE, ticket

from harebell.contract.errors import Malformed
from harebell.contract.message import parse
from harebell.contract.policy import Limit, LimitPer
from harebell.contract.schedule import Definition
from harebell.contract.ticket import Ticket
from harebell.kernel.limits import Tally, Told, account_of, place, slack_of, span_of, start

FIFTY = Limit(per=LimitPer.TARGET, starts=50, within=timedelta(seconds=1))
ONE_AN_HOUR = Limit(per=LimitPer.SCHEDULE, starts=1, within=timedelta(hours=1))


def calling(url: str, tenant: str = "acme") -> Ticket:
    made = ticket()
    work = {**made.work.model_dump(by_alias=True), "tenant": tenant}
    work["target"] = {"http": {"url": url}}
    return parse(Ticket, {**made.model_dump(), "work": work})


def test_s70_a_limit_of_the_target_is_one_for_all_that_call_the_same_host() -> None:
    one, other = calling("https://acme.example/a"), calling("https://acme.example/b?c")

    assert account_of(one, FIFTY) == account_of(other, FIFTY)
    assert account_of(one, FIFTY) != account_of(calling("https://else.example/a"), FIFTY)


def test_s70_tenants_and_limits_of_other_numbers_count_for_themselves() -> None:
    mine = calling("https://acme.example/a")
    theirs = calling("https://acme.example/a", tenant="other")
    fewer = FIFTY.model_copy(update={"starts": 49})

    assert len({account_of(mine, FIFTY), account_of(theirs, FIFTY), account_of(mine, fewer)}) == 3


def test_s70_a_limit_of_the_schedule_is_its_own() -> None:
    one, other = ticket(1), ticket(2)

    assert account_of(one, ONE_AN_HOUR) != account_of(other, ONE_AN_HOUR)


def test_s70_what_comes_too_soon_is_told_when_there_is_room() -> None:
    tally, first = start(Tally(), ONE_AN_HOUR, NINE)
    tally, second = start(tally, ONE_AN_HOUR, NINE + timedelta(minutes=1))
    tally, third = place(tally, ONE_AN_HOUR, NINE + timedelta(minutes=2))

    assert first == Told(NINE, may=True)
    assert second == Told(NINE + span_of(ONE_AN_HOUR), may=False)
    assert third == Told(second.at + span_of(ONE_AN_HOUR), may=False)
    assert tally.starts == (NINE,)


def test_s70_what_comes_a_little_too_soon_waits_for_its_moment() -> None:
    tally, _ = start(Tally(), ONE_AN_HOUR, NINE)
    soon = NINE + span_of(ONE_AN_HOUR)

    tally, told = start(tally, ONE_AN_HOUR, soon - slack_of(ONE_AN_HOUR))

    assert told == Told(soon, may=True)
    assert tally.starts == (soon,)


def test_an_account_is_over_when_nothing_in_it_counts_any_more() -> None:
    tally, _ = start(Tally(), ONE_AN_HOUR, NINE)

    assert Tally().over_at(ONE_AN_HOUR) is None
    assert tally.over_at(ONE_AN_HOUR) == NINE + span_of(ONE_AN_HOUR)


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        ({"per": "tenant", "starts": 1, "within": "1s"}, "limit.per"),
        ({"starts": 1, "within": "1s"}, "limit.per"),
        ({"per": "target", "starts": 0, "within": "1s"}, "limit.starts"),
        ({"per": "target", "starts": 1001, "within": "1s"}, "limit.starts"),
        ({"per": "target", "starts": 1, "within": "999ms"}, "limit.within"),
        ({"per": "target", "starts": 1, "within": "25h"}, "limit.within"),
        ({"per": "target", "starts": 1, "within": "1s", "burst": 2}, "limit.burst"),
    ],
)
def test_s70_a_limit_that_cannot_be_is_refused_by_its_field(
    limit: dict[str, Any], field: str
) -> None:
    body = {"when": {"every": "1m"}, "target": {"task": {"name": "echo"}}, "limit": limit}

    with pytest.raises(Malformed) as refused:
        parse(Definition, body)

    assert refused.value.field == field
