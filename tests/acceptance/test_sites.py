"""Sites with separate pools: the runs of a site wait for the executors of that site."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.acceptance.faults import Pool, assert_each_once, holder_of, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 60  # of each site
SPREAD = 3.0  # seconds; the drained site needs longer for its runs
CALLS_BEFORE_DRAIN = 10  # of the drained site
SLOW = {"HAREBELL_SLOTS_NORMAL": "2", "HAREBELL_MAX_TARGET_SHARE": "1"}


@pytest.fixture
def second_site(pool: Pool) -> Iterator[Pool]:
    """Yield a second site of the same stack."""
    opened = Pool(f"{pool.name}-there", pool.stack)
    yield opened
    opened.close()


@pytest.mark.long
@pytest.mark.requirement("S99")
async def test_runs_stay_in_their_site_and_the_runs_of_a_drained_site_wait_for_a_spare(
    faulty_tenant: Tenant, pool: Pool, second_site: Pool, target: Target
) -> None:
    first_site = pool
    leaving, staying = await first_site.start(1, **SLOW), await second_site.start(2)
    for site, name in ((first_site, "here"), (second_site, "there")):
        hook = target.http(name, sleep=0.3)
        await put_spread(
            faulty_tenant, hook, RUNS, first=1, over=SPREAD, prefix=name, pool=site.name
        )
    await until_called(target, "here", CALLS_BEFORE_DRAIN)

    await asyncio.to_thread(first_site.stack.stop, leaving.name)
    drained_at = len(target.calls("here"))
    await until_called(target, "there", RUNS, within=2 * WAIT_TIMEOUT)
    waiting = len(target.calls("here"))
    spare = await first_site.start(3)
    runs = await faulty_tenant.until_runs(2 * RUNS, "succeeded", within=2 * WAIT_TIMEOUT)

    assert CALLS_BEFORE_DRAIN <= drained_at == waiting < RUNS
    for name, site, executors in (
        ("here", first_site, {leaving.name, spare.name}),
        ("there", second_site, {staying.name}),
    ):
        site_runs = [run for run in runs if run["pool"] == site.name]
        assert_each_once(target.calls(name), site_runs, RUNS)
        assert {holder_of(run) for run in site_runs} == executors
