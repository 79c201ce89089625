"""Places of their own: a pool for each, whose runs wait for its executors and for no others."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.acceptance.faults import Pool, assert_each_once, holder_of, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import WAIT_TIMEOUT, Tenant

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 60  # of each place
OVER = 3.0  # seconds, evenly; the place that is drained needs longer for them
BEGUN = 10  # runs of a place before it is drained
SLOW = {"HAREBELL_SLOTS_NORMAL": "2", "HAREBELL_MAX_TARGET_SHARE": "1"}


@pytest.fixture
def there(pool: Pool) -> Iterator[Pool]:
    """Another place of the same stack."""
    opened = Pool(f"{pool.name}-there", pool.stack)
    yield opened
    opened.close()


@pytest.mark.requirement("S99")
async def test_runs_stay_in_their_place_and_a_drained_places_runs_wait_for_a_spare(
    faulty_tenant: Tenant, pool: Pool, there: Pool, target: Target
) -> None:
    here = pool
    leaving, staying = await here.start(1, **SLOW), await there.start(2)
    for place, name in ((here, "here"), (there, "there")):
        hook = target.http(name, sleep=0.3)
        await put_spread(
            faulty_tenant, hook, RUNS, first=1, over=OVER, prefix=name, pool=place.name
        )
    await until_called(target, "here", BEGUN)

    await asyncio.to_thread(here.stack.stop, leaving.name)
    drained_at = len(target.calls("here"))
    await until_called(target, "there", RUNS, within=2 * WAIT_TIMEOUT)
    waiting = len(target.calls("here"))
    spare = await here.start(3)
    runs = await faulty_tenant.until_runs(2 * RUNS, "succeeded", within=2 * WAIT_TIMEOUT)

    assert BEGUN <= drained_at == waiting < RUNS
    for name, place, executors in (
        ("here", here, {leaving.name, spare.name}),
        ("there", there, {staying.name}),
    ):
        mine = [run for run in runs if run["pool"] == place.name]
        assert_each_once(target.calls(name), mine, RUNS)
        assert {holder_of(run) for run in mine} == executors
