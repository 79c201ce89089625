"""Letters of the same failure are one group, that a person can note, mute and archive."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import DlqEnvironment, dead_letter_id

from harebell.client import Client
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.dead_letter import DeadRun
from harebell.dlq_inspector.maintenance import put_right
from harebell.dlq_inspector.store import dead_letters

HOUR = timedelta(hours=1)


async def failures(environment: DlqEnvironment, *errors: str, dead_at: datetime | None = None) -> list[DeadRun]:
    """So many runs die, each with its error."""
    return [
        await environment.add_dead_run(number, error=error, dead_at=dead_at)
        for number, error in enumerate(errors)
    ]


async def groups(harebell: Client, state: str = "open") -> list[dict[str, Any]]:
    return [group async for group in harebell.failure_groups(state=state)]


async def order(environment: DlqEnvironment, verb: str, *ids: UUID | str, **fields: Any) -> dict[UUID, str]:
    body = {"groups": [str(id_) for id_ in ids], **fields}
    await environment.send_items(verb, AcceptedCommand(index=0, body=body))
    return await environment.next_results()


@pytest.mark.requirement("ASK-25")
async def test_failures_that_differ_in_numbers_only_are_one_group_with_its_counts(
    dlq: DlqEnvironment,
) -> None:
    now = datetime.now(UTC)
    one, two, three = await failures(
        dlq, "order 1 was refused", "order 2 was refused", "no such host", dead_at=now
    )
    await dlq.wait_for_dead_letters(3)

    found = {group["message"]: group for group in await groups(dlq.acme)}

    assert {message: group["open"] for message, group in found.items()} == {
        "order <n> was refused": 2,
        "no such host": 1,
    }
    refused = found["order <n> was refused"]
    assert (refused["letters"], refused["last_hour"], refused["trend"]) == (2, 2, "rising")
    assert (refused["target"], refused["error_code"]) == (
        "http POST https://acme.example",
        "http_503",
    )
    of_group = dlq.acme.dead_letters(group=refused["id"])
    assert {row["id"] async for row in of_group} == {
        str(dead_letter_id(one)),
        str(dead_letter_id(two)),
    }
    [other] = [row async for row in dlq.acme.dead_letters(group=found["no such host"]["id"])]
    assert (other["id"], other["group"]) == (
        str(dead_letter_id(three)),
        found["no such host"]["id"],
    )


@pytest.mark.requirement("S111")
async def test_a_list_is_of_one_error_one_tag_one_age_and_of_what_was_replayed(
    dlq: DlqEnvironment,
) -> None:
    [dead] = await failures(dlq, "refused")
    again = await dlq.add_dead_run(0, replay_number=1)
    await dlq.database.execute(
        """INSERT INTO schedules (id, tenant, class, priority, pool, tags, metadata, version,
               created_at, updated_at)
           VALUES ($1, 'acme', 'normal', 5, 'default', '{reports}', '{}', 1, now(), now())""",
        dead.schedule_id,
    )
    await dlq.wait_for_dead_letters(2)

    async def ids(**only: Any) -> list[str]:
        return [row["id"] async for row in dlq.acme.dead_letters(**only)]

    first, second = str(dead_letter_id(dead)), str(dead_letter_id(again))
    assert await ids(tag="reports", error="http_503") == [second, first]
    assert await ids(tag="other") == await ids(error="http_500") == []
    assert await ids(before=again.dead_at) == await ids(replayed=False) == [first]
    assert await ids(since=again.dead_at) == await ids(replayed=True) == [second]


@pytest.mark.requirement("ASK-25")
async def test_a_note_stays_on_its_group(dlq: DlqEnvironment) -> None:
    await failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await groups(dlq.acme)
    unknown = UUID(int=1)

    results = await order(
        dlq, "dlq.group.note", group["id"], unknown, note="their certificate"
    )

    assert results == {UUID(group["id"]): "noted", unknown: "not_found"}
    [noted] = await groups(dlq.acme)
    assert (noted["note"], noted["changed_by"]) == ("their certificate", "ann")


@pytest.mark.requirement("ASK-25")
async def test_a_muted_group_asks_for_nobody_until_its_time_has_passed(
    dlq: DlqEnvironment,
) -> None:
    await failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await groups(dlq.acme)
    until = datetime.now(UTC) + HOUR

    await order(dlq, "dlq.group.mute", group["id"], until=until.isoformat())

    assert await groups(dlq.acme) == []
    [muted] = await groups(dlq.acme, "muted")
    assert (muted["state"], muted["note"], bool(muted["muted_until"])) == ("muted", None, True)
    assert await dead_letters.count_open(dlq.database) == 0
    await dlq.database.execute("UPDATE failure_groups SET muted_until = now()")
    assert [each["state"] for each in await groups(dlq.acme)] == ["open"]
    assert await dead_letters.count_open(dlq.database) == 1


@pytest.mark.requirement("ASK-25")
async def test_an_archived_group_comes_back_when_it_fails_again(dlq: DlqEnvironment) -> None:
    await failures(dlq, "order 1 was refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await groups(dlq.acme)

    await order(dlq, "dlq.group.archive", group["id"])
    assert await groups(dlq.acme) == []
    await dlq.add_dead_run(1, error="order 2 was refused", dead_at=datetime.now(UTC) + HOUR)
    await dlq.wait_for_dead_letters(2)

    [back] = await groups(dlq.acme)
    assert (back["id"], back["open"], back["state"]) == (group["id"], 2, "open")


async def test_a_group_of_another_tenant_is_not_found(dlq: DlqEnvironment) -> None:
    await failures(dlq, "refused")
    await dlq.wait_for_dead_letters(1)
    [group] = await groups(dlq.acme)
    body = {"groups": [group["id"]]}

    await dlq.send_items("dlq.group.archive", AcceptedCommand(index=0, body=body), tenant="other")

    assert await dlq.next_results() == {UUID(group["id"]): "not_found"}
    assert len(await groups(dlq.acme)) == 1


async def test_letters_that_an_older_release_kept_are_given_their_groups(environment: DlqEnvironment) -> None:
    async with environment.running_inspector():
        await failures(environment, "order 1 was refused", "order 2 was refused", "no such host")
        await environment.wait_for_dead_letters(3)
        before = await groups(environment.acme)
    await environment.database.execute("UPDATE dead_letters SET group_id = NULL")
    await environment.database.execute("TRUNCATE failure_groups")

    async with environment.open_pool() as pool:
        await put_right(pool)

    async with environment.running_inspector():
        assert await groups(environment.acme) == before
