"""Dead letters of the same failure form a group with a note, a mute and an archive state."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import DlqEnvironment, dead_letter_id

from harebell.client import Client
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.dead_letter import DeadRun
from harebell.contract.views import FailureGroupView
from harebell.dlq_inspector.store import dead_letters

HOUR = timedelta(hours=1)


async def add_failures(
    environment: DlqEnvironment, *errors: str, dead_at: datetime | None = None
) -> list[DeadRun]:
    """Add a dead run for each error."""
    return [
        await environment.add_dead_run(number, error=error, dead_at=dead_at)
        for number, error in enumerate(errors)
    ]


async def list_groups(client: Client, state: str = "open") -> list[FailureGroupView]:
    return [group async for group in client.failure_groups(state=state)]


async def send(
    environment: DlqEnvironment, verb: str, *ids: UUID, **fields: Any
) -> dict[UUID, str]:
    body = {"groups": [str(id_) for id_ in ids], **fields}
    await environment.send_items(verb, AcceptedCommand(index=0, body=body))
    return await environment.next_results()


@pytest.mark.requirement("ASK-25")
async def test_failures_form_one_group_if_they_differ_only_in_numbers(dlq: DlqEnvironment) -> None:
    now = datetime.now(UTC)
    one, two, three = await add_failures(
        dlq, "order 1 was refused", "order 2 was refused", "no such host", dead_at=now
    )
    await dlq.wait_for_dead_letters(3)

    found = {group.message: group for group in await list_groups(dlq.acme)}

    assert {message: group.open for message, group in found.items()} == {
        "order <n> was refused": 2,
        "no such host": 1,
    }
    refused = found["order <n> was refused"]
    assert (refused.dead_letters, refused.last_hour, refused.trend) == (2, 2, "rising")
    assert (refused.target, refused.error_code) == (
        "http POST acme.example:443",
        "http_503",
    )
    of_group = dlq.acme.dead_letters(group=refused.id)
    assert {row.id async for row in of_group} == {
        dead_letter_id(one),
        dead_letter_id(two),
    }
    [other] = [row async for row in dlq.acme.dead_letters(group=found["no such host"].id)]
    assert (other.id, other.group) == (
        dead_letter_id(three),
        found["no such host"].id,
    )


@pytest.mark.requirement("S111")
async def test_list_filters_by_error_tag_time_and_replay(dlq: DlqEnvironment) -> None:
    [dead] = await add_failures(dlq, "refused")
    second_death = await dlq.add_dead_run(0, replay_number=1)
    await dlq.database.execute(
        """INSERT INTO schedules (id, tenant, class, priority, pool, tags, metadata, version,
               created_at, updated_at)
           VALUES ($1, 'acme', 'normal', 5, 'default', '{reports}', '{}', 1, now(), now())""",
        dead.schedule_id,
    )
    await dlq.wait_for_dead_letters(2)

    async def ids(**filters: Any) -> list[UUID]:
        return [row.id async for row in dlq.acme.dead_letters(**filters)]

    first, second = dead_letter_id(dead), dead_letter_id(second_death)
    assert await ids(tag="reports", error="http_503") == [second, first]
    assert await ids(tag="other") == await ids(error="http_500") == []
    assert await ids(until=second_death.dead_at) == await ids(replayed=False) == [first]
    assert await ids(since=second_death.dead_at) == await ids(replayed=True) == [second]


@pytest.mark.requirement("ASK-25")
async def test_group_has_the_note_and_its_actor(dlq: DlqEnvironment) -> None:
    await add_failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await list_groups(dlq.acme)
    unknown = UUID(int=1)

    results = await send(dlq, "dlq.group.note", group.id, unknown, note="their certificate")

    assert results == {group.id: "noted", unknown: "not_found"}
    [noted] = await list_groups(dlq.acme)
    assert (noted.note, noted.changed_by) == ("their certificate", "ann")


@pytest.mark.requirement("ASK-25")
async def test_muted_group_is_hidden_until_its_time(dlq: DlqEnvironment) -> None:
    await add_failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await list_groups(dlq.acme)
    until = datetime.now(UTC) + HOUR

    await send(dlq, "dlq.group.mute", group.id, until=until.isoformat())

    assert await list_groups(dlq.acme) == []
    [muted] = await list_groups(dlq.acme, "muted")
    assert (muted.state, muted.note, bool(muted.muted_until)) == ("muted", None, True)
    assert await dead_letters.count_open(dlq.database) == 0
    await dlq.database.execute("UPDATE failure_groups SET muted_until = now()")
    assert [each.state for each in await list_groups(dlq.acme)] == ["open"]
    assert await dead_letters.count_open(dlq.database) == 1


@pytest.mark.requirement("ASK-25")
async def test_archived_group_is_open_after_another_failure(dlq: DlqEnvironment) -> None:
    await add_failures(dlq, "order 1 was refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await list_groups(dlq.acme)

    await send(dlq, "dlq.group.archive", group.id)
    assert await list_groups(dlq.acme) == []
    await dlq.add_dead_run(1, error="order 2 was refused", dead_at=datetime.now(UTC) + HOUR)
    await dlq.wait_for_dead_letters(2)

    [reopened] = await list_groups(dlq.acme)
    assert (reopened.id, reopened.open, reopened.state) == (group.id, 2, "open")


async def test_group_of_another_tenant_is_not_found(dlq: DlqEnvironment) -> None:
    await add_failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await list_groups(dlq.acme)
    body = {"groups": [str(group.id)]}

    await dlq.send_items("dlq.group.archive", AcceptedCommand(index=0, body=body), tenant="other")

    assert await dlq.next_results() == {group.id: "not_found"}
    assert len(await list_groups(dlq.acme)) == 1
