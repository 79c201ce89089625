"""Row 21: the zone data change while services run, and change back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from tests.acceptance.stack import Tenant, time_in, now
from tests.acceptance.test_tzdata import ZONE, zones
from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind

from harebell.dev.plan import ServiceKind as Service

AHEAD: Final = timedelta(hours=1)  # of the old time is the new one
SOON: Final = 40.0  # seconds until instants of the new time; all tickers have it by then
GRACE: Final = 20.0  # seconds for a run after its instant, while tickers come and go


@fault("21", "zone data changed: a zone's time is an hour ahead, and is set back")
async def zone_data(scene: Scene) -> AsyncIterator[None]:
    """A run of tomorrow's that is due in a moment by the new data: it is owed once, then."""
    folder = scene.stack.services.root / scene.tenant
    changed = await asyncio.to_thread(zones, folder, "2099a", as_in="Europe/Berlin")
    due = time_in(SOON).replace(microsecond=0)
    clock = (due + AHEAD).strftime("%-S %-M %-H * * *")
    async with scene.stack.tenant(f"{scene.tenant}-zone") as tenant:
        when = {"cron": clock, "timezone": ZONE, "times": 1}
        await tenant.put("traveller", when, scene.target.http(tenant.name))
        await _restart_tickers(scene, {"PYTHONTZPATH": changed})
        yield
        await _until_run(tenant, (due - now()).total_seconds() + GRACE)
        await _restart_tickers(scene, {})
        called = [call.scheduled_for for call in scene.target.calls(tenant.name)]
    if called != [due]:
        scene.find(Kind.DOUBLED if len(called) > 1 else Kind.LOST, "traveller", f"{due}: {called}")


async def _restart_tickers(scene: Scene, environment: dict[str, str]) -> None:
    """One after the other, so that for a moment each computes by its own."""
    for ticker in scene.all_of(Service.TICKER):
        await scene.stop(ticker)
        await scene.start(ticker, environment)


async def _until_run(tenant: Tenant, within: float) -> None:
    """Or until that takes too long: it is told."""
    try:
        await tenant.until_runs(1, "succeeded", within=within)
    except AssertionError:
        return
