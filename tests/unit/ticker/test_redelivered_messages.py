"""Delayed messages that the broker delivers again, and equal messages that it delivers first."""

from typing import Any

from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import ScheduleState
from harebell.ticker.commands.handlers import CommandContext

DELAYED = {"expected_version": "any", "revive": True}
AFTER = {"after": "30s"}


class RedeliveringTicker(FakeTicker):
    """A ticker that receives commands from redelivered messages while `redelivers` is true."""

    redelivers = False

    def context_of(self, verb: str, body: dict[str, Any]) -> CommandContext:
        return super().context_of(verb, body)._replace(is_redelivered=self.redelivers)


def put(ticker: RedeliveringTicker, *, again: bool, **fields: Any) -> str:
    ticker.redelivers = again
    response = ticker.put(AFTER, **{**DELAYED, **fields})
    assert isinstance(response, ScheduleResponse)
    return response.status


def test_redelivery_of_a_waiting_message_changes_nothing() -> None:
    ticker = RedeliveringTicker(NINE)
    put(ticker, again=False)
    ticker.wait(5)

    assert put(ticker, again=True) == "unchanged"
    assert put(ticker, again=True, target={"task": {"name": "harebell.sleep"}}) == "updated"


def test_equal_message_of_a_first_delivery_replaces_the_waiting_one() -> None:
    ticker = RedeliveringTicker(NINE)
    put(ticker, again=False)
    ticker.wait(5)

    assert put(ticker, again=False) == "updated"


def test_redelivery_soon_after_the_acceptance_is_not_delivered_twice() -> None:
    ticker = RedeliveringTicker(NINE)
    put(ticker, again=False)
    ticker.wait(30).run_due()
    ticker.wait(5)
    assert ticker.record.state is ScheduleState.COMPLETED

    assert put(ticker, again=True) == "unchanged"
    ticker.wait(60)
    assert put(ticker, again=True) == "updated"
