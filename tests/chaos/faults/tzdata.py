"""Row 21: the time zone data change while services run, and change back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from tests.acceptance.stack import Tenant, now, time_in
from tests.acceptance.test_tzdata import ZONE, write_zone
from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind

from harebell.dev.plan import ServiceKind

OFFSET: Final = timedelta(hours=1)  # of the new local time from the old one
LEAD: Final = 40.0  # seconds to the run, until which all tickers have the new data
RUN_TIMEOUT: Final = 20.0  # seconds for a run after its time, while tickers restart


@fault("21", "time zone data changed: a zone is an hour ahead, and changes back")
async def changed_tzdata(environment: Environment) -> AsyncIterator[None]:
    """Check a run of the next day that is due within seconds by the new data, and only once."""
    folder = environment.stack.services.root / environment.tenant
    changed = await asyncio.to_thread(write_zone, folder, "2099a", source="Europe/Berlin")
    due = time_in(LEAD).replace(microsecond=0)
    cron = (due + OFFSET).strftime("%-S %-M %-H * * *")
    async with environment.stack.tenant(f"{environment.tenant}-zone") as tenant:
        when = {"cron": cron, "timezone": ZONE, "times": 1}
        await tenant.put("moved", when, environment.target.http(tenant.name))
        await _restart_tickers(environment, {"PYTHONTZPATH": changed})
        yield
        await _until_run(tenant, (due - now()).total_seconds() + RUN_TIMEOUT)
        await _restart_tickers(environment, {})
        called = [call.scheduled_for for call in environment.target.calls(tenant.name)]
    if called != [due]:
        kind = FindingKind.DUPLICATED if len(called) > 1 else FindingKind.MISSING
        environment.add_finding(kind, "moved", f"{due}: {called}")


async def _restart_tickers(environment: Environment, variables: dict[str, str]) -> None:
    """Restart one ticker after the other, so that for a moment each has its own data."""
    for ticker in environment.members_of(ServiceKind.TICKER):
        await environment.stop(ticker)
        await environment.start(ticker, variables)


async def _until_run(tenant: Tenant, within: float) -> None:
    """Wait for the run, or until the timeout. The caller finds a missing run."""
    try:
        await tenant.until_runs(1, "succeeded", within=within)
    except AssertionError:
        return
