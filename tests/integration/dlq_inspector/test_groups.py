"""Letters of the same failure are one group, that a person can note, mute and archive."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import Office, dead_letter_id

from harebell.client import Client
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.dead_letter import DeadRun
from harebell.dlq_inspector.maintenance import put_right
from harebell.dlq_inspector.store import dead_letters

HOUR = timedelta(hours=1)


async def failures(office: Office, *errors: str, dead_at: datetime | None = None) -> list[DeadRun]:
    """So many runs die, each with its error."""
    return [
        await office.run_dies(number, error=error, dead_at=dead_at)
        for number, error in enumerate(errors)
    ]


async def groups(harebell: Client, state: str = "open") -> list[dict[str, Any]]:
    return [group async for group in harebell.failure_groups(state=state)]


async def order(office: Office, verb: str, *ids: UUID | str, **fields: Any) -> dict[UUID, str]:
    body = {"groups": [str(id_) for id_ in ids], **fields}
    await office.change(verb, AcceptedCommand(index=0, body=body))
    return await office.results()


@pytest.mark.requirement("ASK-25")
async def test_failures_that_differ_in_numbers_only_are_one_group_with_its_counts(
    inspected: Office,
) -> None:
    now = datetime.now(UTC)
    one, two, three = await failures(
        inspected, "order 1 was refused", "order 2 was refused", "no such host", dead_at=now
    )
    await inspected.kept(3)

    found = {group["message"]: group for group in await groups(inspected.acme)}

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
    of_group = inspected.acme.dead_letters(group=refused["id"])
    assert {row["id"] async for row in of_group} == {
        str(dead_letter_id(one)),
        str(dead_letter_id(two)),
    }
    [other] = [row async for row in inspected.acme.dead_letters(group=found["no such host"]["id"])]
    assert (other["id"], other["group"]) == (
        str(dead_letter_id(three)),
        found["no such host"]["id"],
    )


@pytest.mark.requirement("S111")
async def test_a_list_is_of_one_error_one_tag_one_age_and_of_what_was_replayed(
    inspected: Office,
) -> None:
    [dead] = await failures(inspected, "refused")
    again = await inspected.run_dies(0, replay_number=1)
    await inspected.database.execute(
        """INSERT INTO schedules (id, tenant, class, priority, pool, tags, metadata, version,
               created_at, updated_at)
           VALUES ($1, 'acme', 'normal', 5, 'default', '{reports}', '{}', 1, now(), now())""",
        dead.schedule_id,
    )
    await inspected.kept(2)

    async def ids(**only: Any) -> list[str]:
        return [row["id"] async for row in inspected.acme.dead_letters(**only)]

    first, second = str(dead_letter_id(dead)), str(dead_letter_id(again))
    assert await ids(tag="reports", error="http_503") == [second, first]
    assert await ids(tag="other") == await ids(error="http_500") == []
    assert await ids(before=again.dead_at) == await ids(replayed=False) == [first]
    assert await ids(since=again.dead_at) == await ids(replayed=True) == [second]


@pytest.mark.requirement("ASK-25")
async def test_a_note_stays_on_its_group(inspected: Office) -> None:
    await failures(inspected, "refused")
    await inspected.kept(1)
    [group] = await groups(inspected.acme)
    unknown = UUID(int=1)

    results = await order(
        inspected, "dlq.group.note", group["id"], unknown, note="their certificate"
    )

    assert results == {UUID(group["id"]): "noted", unknown: "not_found"}
    [noted] = await groups(inspected.acme)
    assert (noted["note"], noted["changed_by"]) == ("their certificate", "ann")


@pytest.mark.requirement("ASK-25")
async def test_a_muted_group_asks_for_nobody_until_its_time_has_passed(
    inspected: Office,
) -> None:
    await failures(inspected, "refused")
    await inspected.kept(1)
    [group] = await groups(inspected.acme)
    until = datetime.now(UTC) + HOUR

    await order(inspected, "dlq.group.mute", group["id"], until=until.isoformat())

    assert await groups(inspected.acme) == []
    [muted] = await groups(inspected.acme, "muted")
    assert (muted["state"], muted["note"], bool(muted["muted_until"])) == ("muted", None, True)
    assert await dead_letters.count_open(inspected.database) == 0
    await inspected.database.execute("UPDATE failure_groups SET muted_until = now()")
    assert [each["state"] for each in await groups(inspected.acme)] == ["open"]
    assert await dead_letters.count_open(inspected.database) == 1


@pytest.mark.requirement("ASK-25")
async def test_an_archived_group_comes_back_when_it_fails_again(inspected: Office) -> None:
    await failures(inspected, "order 1 was refused")
    await inspected.kept(1)
    [group] = await groups(inspected.acme)

    await order(inspected, "dlq.group.archive", group["id"])
    assert await groups(inspected.acme) == []
    await inspected.run_dies(1, error="order 2 was refused", dead_at=datetime.now(UTC) + HOUR)
    await inspected.kept(2)

    [back] = await groups(inspected.acme)
    assert (back["id"], back["open"], back["state"]) == (group["id"], 2, "open")


async def test_a_group_of_another_tenant_is_not_found(inspected: Office) -> None:
    await failures(inspected, "refused")
    await inspected.kept(1)
    [group] = await groups(inspected.acme)
    body = {"groups": [group["id"]]}

    await inspected.change("dlq.group.archive", AcceptedCommand(index=0, body=body), tenant="other")

    assert await inspected.results() == {UUID(group["id"]): "not_found"}
    assert len(await groups(inspected.acme)) == 1


async def test_letters_that_an_older_release_kept_are_given_their_groups(office: Office) -> None:
    async with office.inspector():
        await failures(office, "order 1 was refused", "order 2 was refused", "no such host")
        await office.kept(3)
        before = await groups(office.acme)
    await office.database.execute("UPDATE dead_letters SET group_id = NULL")
    await office.database.execute("TRUNCATE failure_groups")

    async with office.pool() as pool:
        await put_right(pool)

    async with office.inspector():
        assert await groups(office.acme) == before
