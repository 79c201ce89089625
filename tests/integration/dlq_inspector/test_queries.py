"""The lists are complete, ordered and limited to one tenant."""

from datetime import timedelta
from uuid import UUID

import pytest
from tests.integration.dlq_inspector.environment import (
    NINE,
    SCHEDULE,
    DlqEnvironment,
    dead_letter_id,
    dead_run,
)

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.errors import CommandRejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode_all

MANY = 1_000
SECOND = timedelta(seconds=1)


@pytest.mark.requirement("S111", "ASK-21")
async def test_list_returns_each_of_1000_dead_letters_once_the_newest_first(
    dlq: DlqEnvironment,
) -> None:
    # pairs of dead letters have the same time, so the cursor must distinguish them by id
    runs = [
        dead_run(RunKey(NINE + n // 2 * SECOND, SCHEDULE), replay_number=n % 2) for n in range(MANY)
    ]
    runs = [run.model_copy(update={"dead_at": run.scheduled_for}) for run in runs]
    for start in range(0, MANY, 100):
        body = encode_all(runs[start : start + 100])
        await dlq.publish(amqp_names.DEAD, "run.acme", body, "run.dead")

    rows = await dlq.wait_for_dead_letters(MANY)

    assert {row.id for row in rows} == {dead_letter_id(run) for run in runs}
    assert len(rows) == MANY
    positions = [(row.dead_at, row.id) for row in rows]
    assert sorted(positions, key=lambda position: position[1]) != positions
    assert [at for at, _ in positions] == sorted((at for at, _ in positions), reverse=True)


async def test_list_and_detail_hide_the_dead_letters_of_another_tenant(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for tenant in ("other", "default"):
        url = dlq.settings.amqp_url.get_secret_value()
        async with Client.connect(url, tenant=tenant) as other:
            assert [row async for row in other.dead_letters(state="all")] == []
            with pytest.raises(CommandRejected) as raised:
                await other.dead_letter(dead_letter_id(dead))
        assert raised.value.code == "not_found"


@pytest.mark.requirement("S111")
async def test_list_filters_by_state_and_key(dlq: DlqEnvironment) -> None:
    opened, discarded = await dlq.add_dead_run(1), await dlq.add_dead_run(2)
    await dlq.wait_for_dead_letters(2)
    await dlq.send_command("dlq.discard", dead_letter_id(discarded))
    await dlq.next_response()

    async def ids(state: str = "open", key: str | None = None) -> list[UUID]:
        rows = dlq.acme.dead_letters(state=state, key=key)
        return [row.id async for row in rows]

    assert await ids() == [dead_letter_id(opened)]
    assert await ids(state="discarded") == [dead_letter_id(discarded)]
    assert await ids(state="replayed") == await ids(state="resolved") == []
    assert await ids(state="all") == [dead_letter_id(discarded), dead_letter_id(opened)]
    assert await ids(key="report") == [dead_letter_id(opened)]
    assert await ids(key="other") == []


async def test_list_names_the_field_of_an_unknown_state(dlq: DlqEnvironment) -> None:
    with pytest.raises(CommandRejected) as raised:
        [row async for row in dlq.acme.dead_letters(state="opened")]

    assert (raised.value.code, raised.value.field) == ("invalid_state", "state")


async def test_unknown_query_gets_an_error_response(dlq: DlqEnvironment) -> None:
    await dlq.publish(
        amqp_names.QUERIES,
        "acme.dlq.count",
        b"{}",
        "dlq.count",
        reply_to=dlq.reply_to,
        correlation_id="c-1",
    )

    assert (await dlq.next_response())["error"]["code"] == "unknown_query"
