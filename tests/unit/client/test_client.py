"""TODO: describe this module."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from harebell.client import Client, CommandRejected, InvalidInput, SchedulePut

if TYPE_CHECKING:
    from tests.unit.client.conftest import FakeCourier

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
STORED = {"ok": True, "id": ID, "version": 1, "status": "created", "state": "active"}
REFUSED = {"ok": False, "error": {"code": "too_many_items", "reason": "over 500 items"}}
SCHEDULE = {"key": "a", "when": {"now": True}, "target": {"task": {"name": "acme.report"}}}


async def test_a_mapping_goes_as_it_is_and_a_model_as_it_was_written(
    courier: "FakeCourier",
) -> None:
    courier.answer = lambda _: STORED
    harebell = Client(courier, tenant="acme")

    await harebell.put({"a field of": "a newer Harebell"})
    await harebell.put(SchedulePut.model_validate(SCHEDULE | {"timeout": timedelta(minutes=2)}))

    (key, as_it_is), (_, from_model) = courier.asked
    assert key == "harebell.commands acme.schedule.put"
    assert as_it_is == {"a field of": "a newer Harebell"}
    assert from_model["timeout"] == "2m"
    assert from_model["target"] == {"task": {"name": "acme.report", "args": {}}}


@pytest.mark.parametrize("schedule", [{"key": "\ud800"}, {"key": 2**64}, {"key": object()}])
async def test_what_cannot_be_json_is_not_sent(
    courier: "FakeCourier", schedule: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await Client(courier).put(schedule)

    assert courier.asked == []


async def test_a_message_that_would_close_the_channel_is_not_sent(courier: "FakeCourier") -> None:
    with pytest.raises(InvalidInput, match="over 1048576"):
        await Client(courier).put_many([{"key": "x" * 60_000}] * 20)

    assert courier.asked == []


async def test_no_schedules_are_no_message(courier: "FakeCourier") -> None:
    assert await Client(courier).put_many([]) == []
    assert courier.asked == []


async def test_an_array_that_is_refused_as_a_whole_raises(courier: "FakeCourier") -> None:
    courier.answer = lambda _: REFUSED

    with pytest.raises(CommandRejected, match="over 500 items"):
        await Client(courier).put_many([SCHEDULE, SCHEDULE])


async def test_answers_that_do_not_match_the_items_raise(courier: "FakeCourier") -> None:
    courier.answer = lambda _: [STORED]

    with pytest.raises(InvalidInput):
        await Client(courier).put_many([SCHEDULE, SCHEDULE])


async def test_a_schedule_named_twice_is_not_sent(courier: "FakeCourier") -> None:
    with pytest.raises(InvalidInput, match="exactly one of key, id"):
        await Client(courier).pause(key="a", id=ID)

    assert courier.asked == []


async def test_an_order_may_name_its_schedule_by_uuid(courier: "FakeCourier") -> None:
    courier.answer = lambda _: STORED

    await Client(courier).resume(id=UUID(ID), note=None)

    assert courier.asked == [("harebell.commands default.schedule.resume", {"id": ID})]


async def test_many_dead_letters_go_in_portions(courier: "FakeCourier") -> None:
    courier.answer = lambda asked: {"ok": True, "results": dict.fromkeys(asked["ids"], "replayed")}
    ids = [UUID(int=n) for n in range(1100)]

    answer = await Client(courier).replay(ids, note="fixed")

    assert [len(asked["ids"]) for _, asked in courier.asked] == [500, 500, 100]
    assert list(answer.results) == [str(each) for each in ids]


async def test_since_is_sent_as_an_instant_and_never_without_an_offset(
    courier: "FakeCourier",
) -> None:
    harebell = Client(courier)

    async for _ in harebell.runs(since=datetime(2026, 11, 20, 14, tzinfo=UTC), limit=7):
        pass
    with pytest.raises(InvalidInput, match="no offset"):
        async for _ in harebell.runs(since="2026-11-20T14:00:00"):
            pass

    query = {"since": "2026-11-20T14:00:00Z", "limit": 7}
    assert courier.asked == [("harebell.queries default.run.list", query)]
