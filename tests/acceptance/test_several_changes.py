"""Several pending versions of one schedule on a running stack."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, time_in

from harebell.client import CommandRejected
from harebell.contract.commands import MAX_PENDING_VERSIONS

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SECOND = timedelta(seconds=1)


def every_second(start: datetime, end: int) -> dict[str, Any]:
    """Return a `when` with one time each second from `start` to `end` seconds later."""
    end_at = start + end * SECOND
    return {"every": "1s", "start": start.isoformat(), "end": end_at.isoformat()}


def called(target: Target, path: str) -> list[datetime]:
    return sorted(call.scheduled_for for call in target.calls(path))


@pytest.mark.long
@pytest.mark.requirement("S28", "S29", "S30")
async def test_three_future_changes_take_effect_in_the_order_of_their_effective_times(
    tenant: Tenant, target: Target
) -> None:
    start = time_in(4)
    times = {"b": start + 2 * SECOND, "c": start + 4 * SECOND, "d": start + 6 * SECOND}
    await tenant.put("switching", every_second(start, 7), target.http("a"))

    responses = [
        await tenant.harebell.patch(
            {"target": target.http(name)}, key="switching", effective_at=times[name]
        )
        for name in ("d", "b", "c")
    ]
    detail = await tenant.harebell.schedule(key="switching")
    history = {v.version: v.status for v in await tenant.harebell.versions(key="switching")}
    await tenant.until_runs(8, "succeeded")
    after = {v.version: v for v in await tenant.harebell.versions(key="switching")}

    assert [response.status for response in responses] == ["change_scheduled"] * 3
    assert [response.supersedes for response in responses] == [[], [], []]
    assert [response.pending_version for response in responses] == [2, 3, 4]
    pending = [(each.version, each.effective_at) for each in detail.pending_versions]
    assert pending == [(3, times["b"]), (4, times["c"]), (2, times["d"])]
    assert history == {1: "active", 2: "pending", 3: "pending", 4: "pending"}
    paths = {name: called(target, name) for name in "abcd"}
    assert paths == {
        name: [start + 2 * index * SECOND, start + (2 * index + 1) * SECOND]
        for index, name in enumerate("abcd")
    }
    assert {version.status for version in after.values()} == {"active"}
    assert [number for number, version in after.items() if version.in_force] == [2]


@pytest.mark.requirement("S30")
async def test_response_names_each_pending_version_that_it_supersedes(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("steady", {"every": "1h"}, target.http("never"))
    at = [time_in(3600 * hours) for hours in (1, 2, 3)]
    for index, time in enumerate(at):
        await tenant.harebell.patch({"priority": index + 1}, key="steady", effective_at=time)

    same = await tenant.harebell.patch({"priority": 8}, key="steady", effective_at=at[1])
    at_once = await tenant.harebell.patch({"priority": 9}, key="steady")
    versions = {v.version: v for v in await tenant.harebell.versions(key="steady")}

    assert [(each.version, each.effective_at) for each in same.supersedes] == [(3, at[1])]
    assert [each.version for each in at_once.supersedes] == [2, 5, 4]
    assert [each.effective_at for each in at_once.supersedes] == at
    assert versions[3].status_reason == "replaced by version 5"
    superseded = [number for number, each in versions.items() if each.status == "superseded"]
    assert sorted(superseded) == [2, 3, 4, 5]
    assert versions[6].in_force


@pytest.mark.requirement("S29")
async def test_pending_version_beyond_the_bound_is_rejected(tenant: Tenant, target: Target) -> None:
    await tenant.put("bounded", {"every": "1h"}, target.http("never"))
    for number in range(MAX_PENDING_VERSIONS):
        await tenant.harebell.patch(
            {"priority": number % 10 + 1}, key="bounded", effective_at=time_in(3600 + 60 * number)
        )

    with pytest.raises(CommandRejected) as rejected:
        await tenant.harebell.patch({"priority": 7}, key="bounded", effective_at=time_in(1800))
    detail = await tenant.harebell.schedule(key="bounded")

    assert (rejected.value.code, rejected.value.field) == ("too_many", "effective_at")
    assert f"at most {MAX_PENDING_VERSIONS} pending versions" in rejected.value.reason
    assert len(detail.pending_versions) == MAX_PENDING_VERSIONS


@pytest.mark.requirement("S27")
async def test_patch_from_an_interval_to_a_cron_expression_needs_no_null(
    tenant: Tenant, target: Target
) -> None:
    await tenant.put("kind", {"every": "1h", "jitter": "5s"}, target.http("never"))

    cron = await tenant.harebell.patch({"when": {"cron": "0 9 * * 1-5"}}, key="kind")
    to_cron = (await tenant.harebell.schedule(key="kind")).definition["when"]
    every = await tenant.harebell.patch({"when": {"every": "2h"}}, key="kind")
    to_every = (await tenant.harebell.schedule(key="kind")).definition["when"]

    assert (cron.status, every.status) == ("updated", "updated")
    assert (to_cron["cron"], to_cron["jitter"], "every" in to_cron) == ("0 9 * * 1-5", "5s", False)
    assert (to_every["every"], to_every["jitter"], "cron" in to_every) == ("2h", "5s", False)
