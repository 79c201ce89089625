"""A replay of many is of a frozen set, goes on by itself, and can be stopped by its failures."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import TIMEOUT, DlqEnvironment, dead_letter_id

from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.dead_letter import DeadRun
from harebell.contract.ids import RunKey

ALL = {"all": True}


async def die(environment: DlqEnvironment, number: int) -> list[DeadRun]:
    dead = [await environment.add_dead_run(n) for n in range(number)]
    await environment.wait_for_dead_letters(number)
    return dead


async def order(environment: DlqEnvironment, verb: str, request: str = "r-1", **body: Any) -> dict[str, Any]:
    await environment.send_items(f"dlq.{verb}", AcceptedCommand(index=0, request_id=request, body=body))
    answer: dict[str, Any] = await environment.next_response()
    return answer


async def start(environment: DlqEnvironment, request: str = "r-1", **body: Any) -> UUID:
    answer = await order(environment, "start", request, **body)
    assert answer["status"] == "started"
    return UUID(answer["job"])


async def until(environment: DlqEnvironment, job: UUID, **facts: Any) -> dict[str, Any]:
    """The replay, once all of that is so."""
    async with asyncio.timeout(TIMEOUT):
        while not facts.items() <= (shown := await environment.acme.replay_job(job)).items():
            continue
    return shown


async def end(environment: DlqEnvironment, dead: Sequence[DeadRun], state: str) -> None:
    for each in dead:
        await environment.set_run_state(state, RunKey.parse(each.run_id))


async def replay_number(environment: DlqEnvironment, dead: Sequence[DeadRun]) -> list[int]:
    return [(await environment.run_row(each))["replay_number"] for each in dead]


@pytest.mark.requirement("S112")
async def test_all_that_are_open_are_replayed_and_who_did_it_and_how_each_ended_is_kept(
    dlq: DlqEnvironment,
) -> None:
    dead = await die(dlq, 3)

    job = await start(dlq, select=ALL, note="after the fix")
    await until(dlq, job, taken=3, replayed=3, state="running")
    assert await replay_number(dlq, dead) == [1, 1, 1]
    await end(dlq, dead[:2], "succeeded")
    await end(dlq, dead[2:], "dead")

    shown = await until(dlq, job, state="done", succeeded=2, failed=1)
    assert (shown["actor"], shown["note"], shown["total"]) == ("ann", "after the fix", 3)
    assert (shown["asked"]["select"], bool(shown["finished_at"])) == (ALL, True)
    items = [item async for item in dlq.acme.replay_job_items(job)]
    assert [(item["id"], item["status"], item["outcome"]) for item in items] == [
        *((str(dead_letter_id(each)), "replayed", "succeeded") for each in dead[:2]),
        (str(dead_letter_id(dead[2])), "replayed", "dead"),
    ]
    [line] = [row async for row in dlq.acme.replay_jobs()]
    assert line["id"] == str(job)


@pytest.mark.requirement("ASK-2")
async def test_its_set_is_frozen_when_it_starts(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 2)
    another = "UPDATE dead_letters SET error_code = 'x' WHERE id = $1"
    await dlq.database.execute(another, dead_letter_id(dead[1]))

    job = await start(dlq, select={"error": "http_503"}, rate=0.001)
    later = await dlq.add_dead_run(7)
    await dlq.wait_for_dead_letters(3)

    shown = await until(dlq, job, taken=1)
    assert (shown["total"], shown["waiting"]) == (1, 0)
    assert await replay_number(dlq, [*dead, later]) == [1, 0, 0]


@pytest.mark.requirement("ASK-2")
async def test_the_same_command_again_starts_nothing_new(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 1)

    first, second = [await start(dlq, select=ALL) for _ in range(2)]

    assert first == second
    await until(dlq, first, taken=1)
    assert await replay_number(dlq, dead) == [1]
    assert (await order(dlq, "start", "r-2", select=ALL))["error"]["code"] == "not_found"


@pytest.mark.requirement("ASK-2")
async def test_a_dry_run_says_how_many_and_does_nothing(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 2)

    answer = await order(dlq, "start", select=ALL, dry_run=True)

    assert (answer["status"], answer["total"]) == ("previewed", 2)
    assert [row async for row in dlq.acme.replay_jobs()] == []
    assert await replay_number(dlq, dead) == [0, 0]


@pytest.mark.requirement("ASK-2")
async def test_a_canary_that_fails_leaves_the_others_on_the_desk(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 5)

    job = await start(dlq, select=ALL, canary=2)
    await until(dlq, job, taken=2)
    await end(dlq, dead[:1], "succeeded")
    await end(dlq, dead[1:2], "dead")

    shown = await until(dlq, job, state="aborted", succeeded=1, failed=1)
    assert (shown["reason"], shown["waiting"]) == ("canary_failed", 3)
    assert await replay_number(dlq, dead) == [1, 1, 0, 0, 0]
    still = [row["id"] async for row in dlq.acme.dead_letters()]
    assert set(still) == {str(dead_letter_id(each)) for each in dead[2:]}


@pytest.mark.requirement("ASK-2")
async def test_the_others_follow_a_canary_that_is_well(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 3)

    job = await start(dlq, select=ALL, canary=1)
    await until(dlq, job, taken=1)
    await end(dlq, dead[:1], "succeeded")

    await until(dlq, job, taken=3)
    await end(dlq, dead[1:], "succeeded")
    await until(dlq, job, state="done", succeeded=3)


@pytest.mark.requirement("ASK-2")
async def test_too_many_failures_abort_it(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 4)

    job = await start(dlq, select=ALL, abort_on_failure_ratio=0.5)
    await until(dlq, job, taken=4)
    await end(dlq, dead, "dead")

    shown = await until(dlq, job, state="aborted")
    assert (shown["reason"], shown["failed"]) == ("failure_ratio", 4)


@pytest.mark.requirement("ASK-2")
async def test_it_is_paused_resumed_and_aborted(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 3)
    job = await start(dlq, select=ALL, rate=0.001)
    await until(dlq, job, taken=1)

    steered = [
        await order(dlq, verb, job=str(job)) for verb in ("pause", "pause", "resume", "abort")
    ]

    assert [(each["status"], each["state"]) for each in steered] == [
        ("paused", "paused"),
        ("unchanged", "paused"),
        ("resumed", "running"),
        ("aborted", "aborted"),
    ]
    shown = await until(dlq, job, state="aborted", reason="requested")
    assert shown["changed_by"] == "ann"
    assert 0 in await replay_number(dlq, dead)
    unknown = await order(dlq, "pause", job=str(UUID(int=1)))
    assert unknown["error"]["code"] == "not_found"


@pytest.mark.requirement("ASK-2", "ASK-3")
async def test_it_may_go_to_another_pool(dlq: DlqEnvironment) -> None:
    [dead] = await die(dlq, 1)

    job = await start(dlq, ids=[str(dead_letter_id(dead))], pool="slow")
    await until(dlq, job, taken=1)

    [ticket] = await dlq.next_tickets(1)
    assert (ticket["pool"], (await dlq.run_row(dead))["pool"]) == ("slow", "slow")


async def test_a_letter_that_was_dropped_meanwhile_is_not_replayed(dlq: DlqEnvironment) -> None:
    dead = await die(dlq, 2)
    job = await start(dlq, select=ALL, rate=0.001)
    await until(dlq, job, taken=1)
    await dlq.send_command("dlq.discard", dead_letter_id(dead[1]))
    await dlq.next_response()

    await dlq.database.execute("UPDATE replay_jobs SET rate = NULL, due_at = now()")
    await order(dlq, "pause", job=str(job))  # whoever is told looks at once
    await order(dlq, "resume", job=str(job))

    await until(dlq, job, taken=2, replayed=1, refused=1)
    assert await replay_number(dlq, dead) == [1, 0]
