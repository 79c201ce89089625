"""Public holidays of a country, and the days without trading of a market.

The package `holidays` of the extra `harebell[calendars]` loads on demand.
"""

from typing import Final

from harebell.cli.calendar.source import FoundDays, needing_extra
from harebell.contract.calendar import WEEKDAYS, WeeklyHours
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted

EXAMPLES: Final = "DE, FR or US"
MARKETS: Final = "XNYS, XLON or XECB"


def public_holidays(country: str, subdivision: str | None, years: range) -> FoundDays:
    """Return the public holidays of a country or a part of it. Raise `InvalidInput`."""
    with needing_extra():
        import holidays  # noqa: PLC0415  # in an extra, and slow
    known = holidays.list_supported_countries()
    if country not in known:
        reason = f"The country must be a known code such as {EXAMPLES}, not {quoted(country)}."
        raise InvalidInput(reason, field="country", code="unknown_country")
    if subdivision is not None and subdivision not in known[country]:
        codes = ", ".join(known[country]) or "none"
        reason = f"The subdivision of {country} must be one of {codes}, not {quoted(subdivision)}."
        raise InvalidInput(reason, field="subdivision", code="unknown_subdivision")
    found = holidays.country_holidays(country, subdiv=subdivision, years=years)
    return FoundDays(days=frozenset(found))


def market_closures(market: str, years: range) -> FoundDays:
    """Return the days without trading of a market: its holidays and each weekend.

    Raise `InvalidInput` for an unknown market.
    """
    with needing_extra():
        import holidays  # noqa: PLC0415  # in an extra, and slow
    if market not in holidays.list_supported_financial():
        reason = f"The market must be a known code such as {MARKETS}, not {quoted(market)}."
        raise InvalidInput(reason, field="market", code="unknown_market")
    found = holidays.financial_holidays(market, years=years)
    weekend = [WEEKDAYS[day] for day in sorted(found.weekend)]
    weekly = [WeeklyHours.model_validate({"weekdays": weekend})] if weekend else []
    return FoundDays(days=frozenset(found), weekly=tuple(weekly))
