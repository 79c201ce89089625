"""A letter is replayed exactly once, or is still on the desk, whatever comes in between."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Final

import pytest
from tests.integration.dlq_inspector.environment import TIMEOUT, SCHEDULE, DlqEnvironment, dead_letter_id

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.ids import RunKey
from harebell.contract.responses import ErrorDetail, ErrorResponse
from harebell.messaging.topology.bus import DISPATCHER, DLQ
from harebell.runtime import failpoint

HOUR: Final = timedelta(hours=1)
BEFORE_COMMIT = "dlq_inspector.before_commit"


@pytest.mark.requirement("ASK-3")
async def test_a_replay_is_a_new_series_of_the_same_run(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    run = await dlq.run_row(dead)
    assert (run["state"], run["seq"], run["replay_number"], run["attempt"]) == ("staged", 8, 1, 0)
    assert (run["reason"], run["finished_at"], run["due_at"]) == (None, None, dead.scheduled_for)
    # it had expired, and had been asked to stop: a person asks for it now
    assert (run["expires_at"], run["stop_requested_at"]) == (None, None)


@pytest.mark.requirement("ASK-3")
async def test_its_ticket_is_made_again_from_the_ledger_and_goes_to_due(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))

    [ticket] = await dlq.next_tickets(1)
    assert (ticket["seq"], ticket["replay_number"], ticket["version"]) == (8, 1, 1)
    assert RunKey.parse(dead.run_id).schedule_id == dead.schedule_id
    assert ticket["run_spec"]["target"]["http"]["url"] == "https://acme.example/report"


@pytest.mark.requirement("S33")
async def test_a_replayed_run_is_an_open_run_of_its_schedule_again(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.database.execute(
        """INSERT INTO schedule_state (schedule_id, version, state, changed_at, planned_until,
               dispatched, open_runs) VALUES ($1, 1, 'active', now(), now(), 1, $2)""",
        dead.schedule_id,
        [dead.scheduled_for - HOUR],
    )
    await dlq.wait_for_dead_letters(1)

    for _ in range(2):
        await dlq.send_command("dlq.replay", dead_letter_id(dead))
        await dlq.next_response()

    open_runs = await dlq.database.fetchval(
        "SELECT open_runs FROM schedule_state WHERE schedule_id = $1", dead.schedule_id
    )
    assert open_runs == [dead.scheduled_for - HOUR, dead.scheduled_for]


async def test_who_dropped_a_letter_and_why_is_kept_with_it(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.discard", dead_letter_id(dead))
    await dlq.next_response()

    dropped = (await dlq.acme.dead_letter(dead_letter_id(dead)))["dropped"]
    assert (dropped["actor"], dropped["note"], bool(dropped["at"])) == (
        "ann",
        "after the fix",
        True,
    )


async def test_a_command_that_comes_twice_replays_once(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for _ in range(2):
        await dlq.send_command("dlq.replay", dead_letter_id(dead))

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    assert await dlq.next_results() == {dead_letter_id(dead): "already_replayed"}
    assert (await dlq.run_row(dead))["replay_number"] == 1
    whole = await dlq.acme.dead_letter(dead_letter_id(dead))
    [replay] = whole["replay_history"]
    assert (replay["replay_number"], replay["actor"], replay["note"]) == (1, "ann", "after the fix")
    assert (whole["state"], whole["run_state"], whole["replays"]) == ("replayed", "staged", 1)
    # told again, because it has not started: the same ticket, claimed once
    assert {ticket["seq"] for ticket in await dlq.next_tickets(2)} == {8}


@pytest.mark.requirement("S112")
async def test_a_replay_that_succeeds_is_resolved_and_one_that_dies_again_is_linked(
    dlq: DlqEnvironment,
) -> None:
    lucky, unlucky = await dlq.add_dead_run(1), await dlq.add_dead_run(2)
    await dlq.wait_for_dead_letters(2)
    await dlq.send_command("dlq.replay", dead_letter_id(lucky), dead_letter_id(unlucky))
    await dlq.next_response()

    await dlq.set_run_state("succeeded", RunKey.parse(lucky.run_id))
    again = await dlq.add_dead_run(2, replay_number=1)
    await dlq.wait_for_dead_letters(3)

    states = {letter["id"]: letter["state"] for letter in await dlq.wait_for_dead_letters(3)}
    assert states == {
        str(dead_letter_id(lucky)): "resolved",
        str(dead_letter_id(unlucky)): "replayed",
        str(dead_letter_id(again)): "open",
    }
    whole = await dlq.acme.dead_letter(dead_letter_id(again))
    assert (whole["root_id"], whole["replays"]) == (str(dead_letter_id(unlucky)), 1)
    assert [replay["run_state"] for replay in whole["replay_history"]] == ["dead"]
    await dlq.send_command("dlq.replay", dead_letter_id(again))
    assert await dlq.next_results() == {dead_letter_id(again): "replayed"}


async def test_a_dropped_letter_leaves_the_desk_and_stays_on_record(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for verb in ("dlq.discard", "dlq.discard", "dlq.replay"):
        await dlq.send_command(verb, dead_letter_id(dead))

    statuses = [(await dlq.next_results())[dead_letter_id(dead)] for _ in range(3)]
    assert statuses == ["dropped", "dropped", "not_replayable"]
    assert [row async for row in dlq.acme.dead_letters()] == []
    assert (await dlq.acme.dead_letter(dead_letter_id(dead)))["state"] == "dropped"
    assert (await dlq.run_row(dead))["state"] == "dead"


async def test_a_letter_of_another_tenant_is_not_found(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for verb in ("dlq.replay", "dlq.discard"):
        await dlq.send_command(verb, dead_letter_id(dead), SCHEDULE, tenant="other")

    expected = {dead_letter_id(dead): "not_found", SCHEDULE: "not_found"}
    assert await dlq.next_results() == await dlq.next_results() == expected
    assert (await dlq.run_row(dead))["state"] == "dead"


async def test_neither_a_message_nor_a_run_that_is_not_dead_can_be_replayed(
    dlq: DlqEnvironment,
) -> None:
    dead = await dlq.add_dead_run()
    await dlq.set_run_state("succeeded", RunKey.parse(dead.run_id))
    await dlq.publish(amqp_names.DEAD, "x", b"rubbish", None)
    async with Client.connect(dlq.settings.amqp_url.get_secret_value()) as default:
        [message] = await dlq.wait_for_dead_letters(1, default)
        await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.send_command("dlq.replay", message["id"], tenant="default")

    assert [*(await dlq.next_results()).values()] == ["not_replayable"]
    assert [*(await dlq.next_results()).values()] == ["not_replayable"]


async def test_every_item_of_an_array_is_answered_in_its_place(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    refused = ErrorResponse(error=ErrorDetail(code="foreign_tenant", reason="no"))

    await dlq.send_items(
        "dlq.replay",
        AcceptedCommand(index=0, rejection=refused),
        AcceptedCommand(index=1, body={"ids": [str(dead_letter_id(dead))]}),
        AcceptedCommand(index=2, body={"ids": "all"}),
        single=False,
    )

    first, second, third = await dlq.next_response()
    assert first["error"]["code"] == "foreign_tenant"
    assert second["results"] == {str(dead_letter_id(dead)): "replayed"}
    assert third["error"]["field"] == "[2].ids"


async def test_a_fault_before_the_commit_replays_once_in_the_end(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    failpoint.arm(failpoint.Failpoint(BEFORE_COMMIT, "raise"))
    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.next_tickets(1)
    assert (await dlq.run_row(dead))["state"] == "dead"  # a ticket without authority
    failpoint.arm(None)

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    run = await dlq.run_row(dead)
    assert (run["seq"], run["replay_number"]) == (8, 1)


async def test_an_inspector_killed_before_the_commit_leaves_the_letter_on_the_desk(
    environment: DlqEnvironment,
) -> None:
    dead = await environment.add_dead_run()
    async with environment.running_inspector():
        await environment.wait_for_dead_letters(1)
    await environment.send_command("dlq.replay", dead_letter_id(dead))

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.dlq_inspector"),
        env={**environment.process_variables(), "HAREBELL_FAILPOINT": f"{BEFORE_COMMIT}:kill"},
    )
    async with asyncio.timeout(TIMEOUT):
        assert await process.wait() == -signal.SIGKILL

    assert (await environment.run_row(dead))["state"] == "dead"
    async with environment.running_inspector():
        assert await environment.next_results() == {dead_letter_id(dead): "replayed"}
        assert (await environment.run_row(dead))["replay_number"] == 1


async def test_what_cannot_be_published_is_not_replayed_until_it_can(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    dispatcher = await dlq.channel.get_queue(DISPATCHER.name, ensure=False)
    await dispatcher.unbind(amqp_names.DUE, "#")

    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.wait_until_empty(DLQ.name)  # the inspector has it in hand
    assert (await dlq.run_row(dead))["state"] == "dead"
    await dispatcher.bind(amqp_names.DUE, "#")

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}


async def test_the_service_stops_on_sigterm_with_nothing_undone(environment: DlqEnvironment) -> None:
    dead = await environment.add_dead_run()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.dlq_inspector"), env=environment.process_variables()
    )
    await environment.wait_for_dead_letters(1)
    await environment.send_command("dlq.replay", dead_letter_id(dead))
    assert await environment.next_results() == {dead_letter_id(dead): "replayed"}

    process.terminate()

    async with asyncio.timeout(TIMEOUT):
        assert await process.wait() == os.EX_OK
