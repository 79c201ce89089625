"""A dead letter is replayed exactly once or remains open, after any failure in between."""

import asyncio
import os
from datetime import timedelta
from typing import Final

import pytest
from tests.integration.dlq_inspector.environment import (
    SCHEDULE,
    TIMEOUT,
    DlqEnvironment,
    dead_letter_id,
)

from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.ids import RunKey
from harebell.contract.responses import ErrorDetail, ErrorResponse
from harebell.messaging.topology.bus import DISPATCHER, DLQ
from harebell.runtime import failpoint

HOUR: Final = timedelta(hours=1)
BEFORE_COMMIT = "dlq_inspector.before_commit"


@pytest.mark.requirement("ASK-3")
async def test_replay_stages_the_same_run_with_the_next_replay_number(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    run = await dlq.run_row(dead)
    assert (run["state"], run["seq"], run["replay_number"], run["attempt"]) == ("staged", 8, 1, 0)
    assert (run["reason"], run["finished_at"], run["due_at"]) == (None, None, dead.scheduled_for)
    # the dead run had an expiry and a stop request, which the new request of a person cancels
    assert (run["expires_at"], run["stop_requested_at"]) == (None, None)


@pytest.mark.requirement("ASK-3")
async def test_replay_publishes_a_ticket_rebuilt_from_the_ledger(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))

    [ticket] = await dlq.next_tickets(1)
    assert (ticket["seq"], ticket["replay_number"], ticket["version"]) == (8, 1, 1)
    assert RunKey.parse(dead.run_id).schedule_id == dead.schedule_id
    assert ticket["run_spec"]["target"]["http"]["url"] == "https://acme.example/report"


@pytest.mark.requirement("S33")
async def test_replayed_run_is_an_open_run_of_its_schedule(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.database.execute(
        """INSERT INTO schedule_state (schedule_id, version, state, changed_at, planned_until,
               dispatched, open_runs, executions, failures)
           VALUES ($1, 1, 'active', now(), now(), 1, $2, 9, 4)""",
        dead.schedule_id,
        [dead.scheduled_for - HOUR],
    )
    await dlq.wait_for_dead_letters(1)

    for _ in range(2):
        await dlq.send_command("dlq.replay", dead_letter_id(dead))
        await dlq.next_response()

    state = await dlq.database.fetchrow(
        "SELECT * FROM schedule_state WHERE schedule_id = $1", dead.schedule_id
    )
    assert state["open_runs"] == [dead.scheduled_for - HOUR, dead.scheduled_for]
    assert (state["executions"], state["failures"]) == (8, 3)  # the run counts again at its end


async def test_discarded_dead_letter_has_the_actor_and_the_note(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.discard", dead_letter_id(dead))
    await dlq.next_response()

    discarded = (await dlq.acme.dead_letter(dead_letter_id(dead))).discarded
    assert discarded is not None
    assert (discarded.actor, discarded.note, bool(discarded.at)) == (
        "ann",
        "after the fix",
        True,
    )


async def test_replay_happens_once_when_the_command_is_repeated(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for _ in range(2):
        await dlq.send_command("dlq.replay", dead_letter_id(dead))

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    assert await dlq.next_results() == {dead_letter_id(dead): "already_replayed"}
    assert (await dlq.run_row(dead))["replay_number"] == 1
    detail = await dlq.acme.dead_letter(dead_letter_id(dead))
    [replay] = detail.replay_history
    assert (replay.replay_number, replay.actor, replay.note) == (1, "ann", "after the fix")
    assert (detail.state, detail.run_state, detail.replays) == ("replayed", "staged", 1)
    # the run has not started, so the repeat publishes the same ticket, which allows one claim
    assert {ticket["seq"] for ticket in await dlq.next_tickets(2)} == {8}


@pytest.mark.requirement("S112")
async def test_dead_letter_is_resolved_after_success_and_linked_after_another_death(
    dlq: DlqEnvironment,
) -> None:
    succeeding, dying = await dlq.add_dead_run(1), await dlq.add_dead_run(2)
    await dlq.wait_for_dead_letters(2)
    await dlq.send_command("dlq.replay", dead_letter_id(succeeding), dead_letter_id(dying))
    await dlq.next_response()

    await dlq.set_run_state("succeeded", RunKey.parse(succeeding.run_id))
    second_death = await dlq.add_dead_run(2, replay_number=1)
    await dlq.wait_for_dead_letters(3)

    states = {row.id: row.state for row in await dlq.wait_for_dead_letters(3)}
    assert states == {
        dead_letter_id(succeeding): "resolved",
        dead_letter_id(dying): "replayed",
        dead_letter_id(second_death): "open",
    }
    detail = await dlq.acme.dead_letter(dead_letter_id(second_death))
    assert (detail.root_id, detail.replays) == (dead_letter_id(dying), 1)
    assert [replay.run_state for replay in detail.replay_history] == ["dead"]
    await dlq.send_command("dlq.replay", dead_letter_id(second_death))
    assert await dlq.next_results() == {dead_letter_id(second_death): "replayed"}


async def test_discarded_dead_letter_is_not_open_and_not_replayable(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for verb in ("dlq.discard", "dlq.discard", "dlq.replay"):
        await dlq.send_command(verb, dead_letter_id(dead))

    statuses = [(await dlq.next_results())[dead_letter_id(dead)] for _ in range(3)]
    assert statuses == ["discarded", "discarded", "not_replayable"]
    assert [row async for row in dlq.acme.dead_letters()] == []
    assert (await dlq.acme.dead_letter(dead_letter_id(dead))).state == "discarded"
    assert (await dlq.run_row(dead))["state"] == "dead"


async def test_dead_letter_of_another_tenant_is_not_found(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for verb in ("dlq.replay", "dlq.discard"):
        await dlq.send_command(verb, dead_letter_id(dead), SCHEDULE, tenant="other")

    expected = {dead_letter_id(dead): "not_found", SCHEDULE: "not_found"}
    assert await dlq.next_results() == await dlq.next_results() == expected
    assert (await dlq.run_row(dead))["state"] == "dead"


async def test_message_and_run_that_is_not_dead_are_not_replayable(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.set_run_state("succeeded", RunKey.parse(dead.run_id))
    await dlq.publish(amqp_names.DEAD, "x", b"unreadable", None)
    async with dlq.operators() as operators:
        [message] = await dlq.wait_for_dead_letters(1, operators)
        await dlq.wait_for_dead_letters(1)

    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.send_command("dlq.replay", message.id, tenant="harebell")

    assert [*(await dlq.next_results()).values()] == ["not_replayable"]
    assert [*(await dlq.next_results()).values()] == ["not_replayable"]


async def test_items_of_an_array_get_responses_in_order(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    error = ErrorDetail(code="foreign_tenant", reason="The tenant must be acme, not other.")

    await dlq.send_items(
        "dlq.replay",
        AcceptedCommand(index=0, rejection=ErrorResponse(error=error)),
        AcceptedCommand(index=1, body={"ids": [str(dead_letter_id(dead))]}),
        AcceptedCommand(index=2, body={"ids": "all"}),
        single=False,
    )

    first, second, third = await dlq.next_response()
    assert first["error"]["code"] == "foreign_tenant"
    assert second["results"] == {str(dead_letter_id(dead)): "replayed"}
    assert third["error"]["field"] == "[2].ids"


async def test_replay_happens_once_after_a_failure_before_the_commit(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    failpoint.arm(failpoint.Failpoint(BEFORE_COMMIT, "raise"))
    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.next_tickets(1)
    assert (await dlq.run_row(dead))["state"] == "dead"  # the first ticket has no committed row
    failpoint.arm(None)

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}
    run = await dlq.run_row(dead)
    assert (run["seq"], run["replay_number"]) == (8, 1)


async def test_dead_letter_remains_open_if_the_process_is_killed_before_the_commit(
    environment: DlqEnvironment,
) -> None:
    dead = await environment.add_dead_run()
    async with environment.running_inspector():
        await environment.wait_for_dead_letters(1)
    await environment.send_command("dlq.replay", dead_letter_id(dead))

    await environment.run_until_killed(BEFORE_COMMIT)

    assert (await environment.run_row(dead))["state"] == "dead"
    async with environment.running_inspector():
        assert await environment.next_results() == {dead_letter_id(dead): "replayed"}
        assert (await environment.run_row(dead))["replay_number"] == 1


async def test_replay_waits_until_its_ticket_can_be_published(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)
    dispatcher = await dlq.channel.get_queue(DISPATCHER.name, ensure=False)
    await dispatcher.unbind(amqp_names.DUE, "#")

    await dlq.send_command("dlq.replay", dead_letter_id(dead))
    await dlq.wait_until_empty(DLQ.name)  # the dlq_inspector has received the command
    assert (await dlq.run_row(dead))["state"] == "dead"
    await dispatcher.bind(amqp_names.DUE, "#")

    assert await dlq.next_results() == {dead_letter_id(dead): "replayed"}


async def test_process_exits_without_an_error_after_sigterm(environment: DlqEnvironment) -> None:
    dead = await environment.add_dead_run()
    async with environment.process() as process:
        await environment.wait_until_consumed(DLQ.name)
        await environment.wait_for_dead_letters(1)
        await environment.send_command("dlq.replay", dead_letter_id(dead))
        assert await environment.next_results() == {dead_letter_id(dead): "replayed"}

        process.terminate()

        async with asyncio.timeout(TIMEOUT):
            assert await process.wait() == os.EX_OK
