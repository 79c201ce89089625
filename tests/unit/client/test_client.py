"""The client: the requests that it sends, its errors, and the types that it returns."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from harebell.client import Client, CommandRejected, InvalidInput, SchedulePut
from harebell.contract.responses import QUERY_RESPONSES, Page
from harebell.contract.views import VersionListView, VersionView

if TYPE_CHECKING:
    from tests.unit.client.conftest import FakeTransport

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
STORED = {"ok": True, "id": ID, "version": 1, "status": "created", "state": "active"}
REJECTED = {"ok": False, "error": {"code": "too_many_items", "reason": "over 500 items"}}
SCHEDULE = {"key": "a", "when": {"now": True}, "target": {"task": {"name": "acme.report"}}}
ITEM = {"position": 1, "id": ID, "status": "replayed"}

QUERY_METHODS = {
    "schedule.get": Client.schedule,
    "schedule.list": Client.schedules,
    "schedule.preview": Client.preview,
    "schedule.why": Client.why,
    "run.get": Client.run,
    "run.list": Client.runs,
    "run.forecast": Client.forecast,
    "dlq.list": Client.dead_letters,
    "dlq.get": Client.dead_letter,
    "dlq.group.list": Client.failure_groups,
    "dlq.replay_job.list": Client.replay_jobs,
    "dlq.replay_job.get": Client.replay_job,
    "dlq.replay_job.items": Client.replay_job_items,
    "dlq.parked": Client.parked_dead_letters,
    "breaker.list": Client.breakers,
    "calendar.get": Client.calendar,
    "calendar.list": Client.calendars,
    "tenant.usage": Client.tenant_usage,
}


async def test_put_sends_a_mapping_unchanged_and_a_model_as_json(
    transport: "FakeTransport",
) -> None:
    transport.respond = lambda _: STORED
    client = Client(transport, tenant="acme")

    await client.put({"a field of": "a newer Harebell"})
    await client.put(SchedulePut.model_validate(SCHEDULE | {"timeout": timedelta(minutes=2)}))

    (key, mapping), (_, model) = transport.requests
    assert key == "harebell.commands acme.schedule.put"
    assert mapping == {"a field of": "a newer Harebell"}
    assert model["timeout"] == "2m"
    assert model["target"] == {"task": {"name": "acme.report", "args": {}}}


@pytest.mark.parametrize("schedule", [{"key": "\ud800"}, {"key": 2**64}, {"key": object()}])
async def test_put_rejects_a_value_that_json_cannot_contain(
    transport: "FakeTransport", schedule: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await Client(transport).put(schedule)

    assert transport.requests == []


async def test_put_many_rejects_a_message_for_which_the_broker_closes_the_channel(
    transport: "FakeTransport",
) -> None:
    with pytest.raises(InvalidInput, match="at most 1048576 bytes"):
        await Client(transport).put_many([{"key": "x" * 60_000}] * 20)

    assert transport.requests == []


async def test_put_many_sends_no_message_without_schedules(transport: "FakeTransport") -> None:
    assert await Client(transport).put_many([]) == []
    assert transport.requests == []


async def test_put_many_raises_an_error_of_the_whole_message(transport: "FakeTransport") -> None:
    transport.respond = lambda _: REJECTED

    with pytest.raises(CommandRejected, match="over 500 items"):
        await Client(transport).put_many([SCHEDULE, SCHEDULE])


async def test_put_many_raises_an_error_for_another_number_of_responses(
    transport: "FakeTransport",
) -> None:
    transport.respond = lambda _: [STORED]

    with pytest.raises(InvalidInput, match="must contain 2 responses, not 1"):
        await Client(transport).put_many([SCHEDULE, SCHEDULE])


async def test_command_rejects_a_key_next_to_an_id(transport: "FakeTransport") -> None:
    with pytest.raises(InvalidInput, match="exactly one of key, id"):
        await Client(transport).pause(key="a", id=ID)

    assert transport.requests == []


async def test_command_accepts_a_uuid_as_id(transport: "FakeTransport") -> None:
    transport.respond = lambda _: STORED

    await Client(transport).resume(id=UUID(ID), note=None)

    assert transport.requests == [("harebell.commands default.schedule.resume", {"id": ID})]


async def test_replay_sends_many_dead_letters_in_batches(transport: "FakeTransport") -> None:
    transport.respond = lambda body: {
        "ok": True,
        "results": dict.fromkeys(body["ids"], "replayed"),
    }
    ids = [UUID(int=n) for n in range(1100)]

    response = await Client(transport).replay(ids, note="fixed")

    assert [len(body["ids"]) for _, body in transport.requests] == [500, 500, 100]
    assert list(response.results) == [str(each) for each in ids]


async def test_runs_sends_a_time_with_its_offset(transport: "FakeTransport") -> None:
    client = Client(transport)

    async for _ in client.runs(since=datetime(2026, 11, 20, 14, tzinfo=UTC), limit=7):
        pass
    with pytest.raises(InvalidInput, match="must have an offset"):
        async for _ in client.runs(since="2026-11-20T14:00:00"):
            pass

    query = {"since": "2026-11-20T14:00:00Z", "limit": 7}
    assert transport.requests == [("harebell.queries default.run.list", query)]


async def test_list_continues_with_the_cursor_until_the_limit(transport: "FakeTransport") -> None:
    transport.respond = lambda body: {
        "ok": True,
        "items": [ITEM] * min(body["limit"], 500),
        "next": "500",
    }

    items = [item async for item in Client(transport).replay_job_items(ID, limit=510)]

    assert len(items) == 510
    assert [body for _, body in transport.requests] == [
        {"id": ID, "limit": 500},
        {"id": ID, "limit": 10, "after": "500"},
    ]


async def test_view_has_types_and_ignores_unknown_fields(transport: "FakeTransport") -> None:
    transport.respond = lambda _: {"ok": True, "items": [ITEM | {"of_a_later_version": 1}]}

    [item] = [item async for item in Client(transport).replay_job_items(ID)]

    assert (item.id, item.position, item.outcome) == (UUID(ID), 1, None)


@pytest.mark.parametrize("verb", sorted(QUERY_RESPONSES.keys() - {"schedule.versions"}))
def test_method_returns_the_response_type_of_its_query(verb: str) -> None:
    declared = get_type_hints(QUERY_METHODS[verb])["return"]
    response = QUERY_RESPONSES[verb]

    if issubclass(response, Page):
        assert get_origin(declared) in {AsyncIterator, list}
        assert response.__pydantic_generic_metadata__["args"] == get_args(declared)
    else:
        assert declared is response


def test_versions_returns_the_versions_of_its_response() -> None:
    assert QUERY_RESPONSES["schedule.versions"] is VersionListView
    assert get_type_hints(Client.versions)["return"] == list[VersionView]
