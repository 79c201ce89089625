"""The boundary between tenants: the CPU of a run and of a schedule without and with it, in turn."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from tests.acceptance.production import Production
from tests.acceptance.stack import Tenant, time_in
from tests.benchmarks.figures import Report
from tests.benchmarks.machine import watch_speed
from tests.benchmarks.rig import MODEL_DUE, Rig, Scale, start_lateness
from tests.benchmarks.workloads.accept import ACCEPTED, put_all
from tests.benchmarks.workloads.stampede import measure_costs
from tests.benchmarks.workloads.tenants import stop
from tests.benchmarks.workloads.traces import OFF, Round, cpu_ratios

from harebell.dev.spawn import start_process

RATE: Final = 2_000  # runs a second, for which two cores have time left
SECONDS: Final = 8
ON: Final = "boundary"
# Quotas that nothing reaches, so that each is counted.
MANY: Final = 1_000_000
RATES: Final = f"puts_per_second: {MANY}, runs_per_second: {MANY}"
POLICY: Final = f"defaults: {{quotas: {{schedules: {MANY}, concurrent_runs: {MANY}, {RATES}}}}}\n"
OpenTenant = Callable[[], AbstractAsyncContextManager[Tenant]]


async def boundary(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the same work of one tenant in both modes, with idle services in neither.

    With the boundary, the broker has the definitions file, each service has its own login and
    verifies identities, and the tenant has a login, an exchange, queues and a policy.
    """
    stop(rig)
    rounds: dict[str, list[Round]] = {"sustained": [], "accept": []}
    opened = ExitStack()
    try:
        # The manager runs an event loop of its own.
        production, bounded = await asyncio.to_thread(opened.enter_context, prepared(rig, scale))
        settings: dict[str, Any] = bounded.settings
        for number in range(scale.times):
            samples = {
                OFF: partial(sample, rig, rig.start, rig.tenant),
                ON: partial(
                    sample,
                    bounded,
                    partial(production.start, **settings),
                    partial(production.tenant, f"sample-{number}"),
                ),
            }
            # The second sample also pays for the vacuum of the first one's rows.
            order = (OFF, ON) if number % 2 else (ON, OFF)
            found = {mode: await samples[mode]() for mode in order}
            for workload, of_workload in rounds.items():
                of_workload.append({mode: each[workload] for mode, each in found.items()})
                for mode, figures in of_workload[-1].items():
                    report.add(f"boundary {workload}", mode=mode, **figures)
    finally:
        await asyncio.to_thread(opened.close)
        rig.start()
    ratios = {workload: cpu_ratios(each)[ON] for workload, each in rounds.items()}
    report.add("boundary cost", cpu_ratio=ratios)


@contextmanager
def prepared(rig: Rig, scale: Scale) -> Iterator[tuple[Production, Rig]]:
    """Yield a prepared broker with a tenant for each sample, and a rig of its stack."""
    root = rig.starts.parent / "boundary"
    policy = rig.starts.parent / "tenants.yml"
    policy.write_text(POLICY)
    tenants = [f"sample-{number}" for number in range(scale.times)]
    with Production.open(rig.stack.servers, root, tenants=tenants, start=start_process) as opened:
        settings = rig.settings | {
            "HAREBELL_TENANTS_FILE": str(policy),
            "HAREBELL_IDENTITY": "verified",
        }
        yield (
            opened,
            Rig(stack=opened.stack, starts=rig.starts, settings=settings, horizon=rig.horizon),
        )


async def sample(
    rig: Rig, start: Callable[[], None], tenant: OpenTenant
) -> Mapping[str, Mapping[str, Any]]:
    """Return the figures of due runs, and then of schedules that are due in the far future."""
    number = RATE * SECONDS
    start()
    try:
        async with tenant() as opened:
            wave = await rig.load(opened, number, rate=RATE)
            async with measure_costs(rig, wave) as costs:
                pass
            starts = await rig.started(number)
            async with watch_speed() as watch:
                before = rig.spent()
                await put_all(opened, ACCEPTED, {"at": time_in(MODEL_DUE).isoformat()})
                spent = rig.spent() - before
    finally:
        stop(rig)
    return {
        "sustained": {"late_ms": start_lateness(starts), **costs.figures(number)},
        "accept": {"cpu_us_per_run": spent.per(ACCEPTED), "python_ns": watch.median_ns},
    }
