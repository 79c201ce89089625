"""Runs of a small tenant, in turn without and with the flood of another tenant."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, start_lateness
from tests.benchmarks.starts import Starts

from harebell.dev.plan import name_of

VICTIM_RUNS: Final = 400
VICTIM_RATE: Final = 40.0  # runs a second, for ten seconds
FLOOD_RUNS: Final = 50_000  # of the other tenant, due at the first run of the victim
QUIET_TASK: Final = {"task": {"name": "harebell.echo", "args": {}}}  # records no start
POLICY: Final = "defaults: {}\n"  # the default quotas
FLOOD_EXPIRY: Final = "20s"
FLOOD_TIMEOUT: Final = 300.0  # seconds until the flood has expired
LOADING: Final = 6.0  # seconds between the loads, because the flood is loaded first


async def tenants(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the lateness of the runs of one tenant without and with the flood of another."""
    policy = rig.starts.parent / "tenants.yml"
    policy.write_text(POLICY)
    restart(rig, policy)
    pooled: dict[str, Starts] = {"calm_ms": [], "flooded_ms": []}
    for _ in range(scale.times):
        starts = {
            "calm_ms": await victim_starts(rig, flood=0),
            "flooded_ms": await victim_starts(rig, flood=FLOOD_RUNS),
        }
        report.add(
            "tenants",
            n=VICTIM_RUNS,
            flood=FLOOD_RUNS,
            **{name: start_lateness(of) for name, of in starts.items()},
        )
        for name, of in starts.items():
            pooled[name] += of
    report.add(
        "tenants pooled",
        n=VICTIM_RUNS * scale.times,
        flood=FLOOD_RUNS,
        **{name: start_lateness(of) for name, of in pooled.items()},
    )


def restart(rig: Rig, policy: Path) -> None:
    """Start the services again with the tenant policy."""
    rig.stop(*(name_of(kind, number) for kind, number in rig.counts.members()))
    rig.settings["HAREBELL_TENANTS_FILE"] = str(policy)
    rig.start()


async def victim_starts(rig: Rig, *, flood: int) -> Starts:
    """Return the starts of the victim. The rest of the flood expires before the next sample."""
    async with AsyncExitStack() as opened:
        attacker, victim = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if flood:
            load = rig.load(
                attacker, flood, later=LOADING, target=QUIET_TASK, expires_after=FLOOD_EXPIRY
            )
            waves.append(await load)
        waves.append(await rig.load(victim, VICTIM_RUNS, rate=VICTIM_RATE))
        for wave in reversed(waves):
            await rig.until(wave.last)
            await rig.drained(wave, within=FLOOD_TIMEOUT)
        return await rig.started(VICTIM_RUNS)
