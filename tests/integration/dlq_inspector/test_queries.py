"""The desk's lists: whole, in order, and of one tenant."""

from datetime import timedelta

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
async def test_a_thousand_letters_page_through_newest_first(dlq: DlqEnvironment) -> None:
    # by twos of the same instant: the cursor must tell them apart
    runs = [
        dead_run(RunKey(NINE + n // 2 * SECOND, SCHEDULE), replay_number=n % 2) for n in range(MANY)
    ]
    runs = [run.model_copy(update={"dead_at": run.scheduled_for}) for run in runs]
    for start in range(0, MANY, 100):
        body = encode_all(runs[start : start + 100])
        await dlq.publish(amqp_names.DEAD, "run.acme", body, "run.dead")

    rows = await dlq.wait_for_dead_letters(MANY)

    assert {row["id"] for row in rows} == {str(dead_letter_id(run)) for run in runs}
    assert len(rows) == MANY
    places = [(row["dead_at"], row["id"]) for row in rows]
    assert sorted(places, key=lambda place: place[1]) != places
    assert [at for at, _ in places] == sorted((at for at, _ in places), reverse=True)


async def test_another_tenant_sees_nothing(dlq: DlqEnvironment) -> None:
    dead = await dlq.add_dead_run()
    await dlq.wait_for_dead_letters(1)

    for tenant in ("other", "default"):
        url = dlq.settings.amqp_url.get_secret_value()
        async with Client.connect(url, tenant=tenant) as other:
            assert [row async for row in other.dead_letters(state="all")] == []
            with pytest.raises(CommandRejected) as refused:
                await other.dead_letter(dead_letter_id(dead))
        assert refused.value.code == "not_found"


@pytest.mark.requirement("S111")
async def test_a_list_is_of_one_state_and_one_schedule(dlq: DlqEnvironment) -> None:
    opened, dropped = await dlq.add_dead_run(1), await dlq.add_dead_run(2)
    await dlq.wait_for_dead_letters(2)
    await dlq.send_command("dlq.discard", dead_letter_id(dropped))
    await dlq.next_response()

    async def ids(state: str = "open", key: str | None = None) -> list[str]:
        letters = dlq.acme.dead_letters(state=state, key=key)
        return [row["id"] async for row in letters]

    assert await ids() == [str(dead_letter_id(opened))]
    assert await ids(state="dropped") == [str(dead_letter_id(dropped))]
    assert await ids(state="replayed") == await ids(state="resolved") == []
    assert await ids(state="all") == [str(dead_letter_id(dropped)), str(dead_letter_id(opened))]
    assert await ids(key="report") == [str(dead_letter_id(opened))]
    assert await ids(key="other") == []


async def test_a_bad_question_is_refused_with_its_field(dlq: DlqEnvironment) -> None:
    with pytest.raises(CommandRejected) as refused:
        [row async for row in dlq.acme.dead_letters(state="opened")]

    assert (refused.value.code, refused.value.field) == ("invalid_state", "state")


async def test_a_question_that_nobody_knows_is_answered(dlq: DlqEnvironment) -> None:
    await dlq.publish(
        amqp_names.QUERIES,
        "acme.dlq.count",
        b"{}",
        "dlq.count",
        reply_to=dlq.reply_to,
        correlation_id="c-1",
    )

    assert (await dlq.next_response())["error"]["code"] == "unknown_query"
