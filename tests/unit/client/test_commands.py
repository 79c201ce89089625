"""The body of each command and query, for its keyword arguments."""

from typing import TYPE_CHECKING, Any

import pytest

from harebell.client import Client, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.client.conftest import FakeTransport

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
RUN = f"{ID}@20261120T140000000Z"
AT = "2026-12-25T09:00:00Z"
DOWNSTREAM = "acme.example:443"
SCHEDULE_RESPONSE = {"ok": True, "id": ID, "version": 1, "status": "done", "state": "active"}
BULK_RESPONSE = {"ok": True, "bulk_operation_id": "r-1", "changed": [ID]}
RUN_RESPONSE = {"ok": True, "run_id": RUN, "status": "resolved", "state": "staged"}
JOB_RESPONSE = {"ok": True, "id": ID, "status": "paused", "total": 3}
BREAKER_RESPONSE = {"ok": True, "downstream": DOWNSTREAM, "status": "automatic"}
GROUP_RESPONSE = {"ok": True, "results": {ID: "noted"}}
VIEW = {"ok": True, "id": ID, "state": "active", "verdict": "ran", "text": "It succeeded."}

Call = tuple["Callable[[Client], Awaitable[Any]]", str, dict[str, Any], dict[str, Any]]
CALLS: list[Call] = [
    (
        lambda client: client.patch({"owner": None}, key="a"),
        "acme.schedule.patch",
        {"key": "a", "set": {"owner": None}},
        SCHEDULE_RESPONSE,
    ),
    (
        lambda client: client.pause(key="a", until=AT),
        "acme.schedule.pause",
        {"key": "a", "until": AT},
        SCHEDULE_RESPONSE,
    ),
    (
        lambda client: client.skip(AT, key="a"),
        "acme.schedule.skip",
        {"key": "a", "at": AT},
        SCHEDULE_RESPONSE,
    ),
    (
        lambda client: client.trigger(key="a", overlap="queue"),
        "acme.schedule.trigger",
        {"key": "a", "overlap": "queue"},
        SCHEDULE_RESPONSE,
    ),
    (
        lambda client: client.backfill(AT, AT, key="a"),
        "acme.schedule.backfill",
        {"key": "a", "from": AT, "to": AT, "max": 100, "dry_run": False},
        SCHEDULE_RESPONSE,
    ),
    (
        lambda client: client.pause_all({"tag": "x"}, request_id="r-1"),
        "acme.schedule.pause",
        {"select": {"tag": "x"}, "request_id": "r-1"},
        BULK_RESPONSE,
    ),
    (
        lambda client: client.resume_all(bulk_operation_id="r-1", request_id="r-2"),
        "acme.schedule.resume",
        {"bulk_operation_id": "r-1", "request_id": "r-2"},
        BULK_RESPONSE,
    ),
    (
        lambda client: client.cancel_all({"owner": "x"}, request_id="r-1"),
        "acme.schedule.cancel",
        {"select": {"owner": "x"}, "request_id": "r-1"},
        BULK_RESPONSE,
    ),
    (
        lambda client: client.resolve_run(RUN, "retry"),
        "acme.run.resolve",
        {"run_id": RUN, "as": "retry"},
        RUN_RESPONSE,
    ),
    (
        lambda client: client.pause_replay_job(ID),
        "acme.dlq.replay_job.pause",
        {"id": ID},
        JOB_RESPONSE,
    ),
    (
        lambda client: client.note_groups([ID], "known"),
        "acme.dlq.group.note",
        {"groups": [ID], "note": "known"},
        GROUP_RESPONSE,
    ),
    (
        lambda client: client.reset_breaker(DOWNSTREAM),
        "harebell.breaker.reset",
        {"downstream": DOWNSTREAM},
        BREAKER_RESPONSE,
    ),
    (
        lambda client: client.breakers(),
        "harebell.breaker.list",
        {},
        {"ok": True, "items": []},
    ),
    (
        lambda client: client.versions(key="a"),
        "acme.schedule.versions",
        {"key": "a"},
        VIEW | {"versions": []},
    ),
    (
        lambda client: client.preview(key="a", count=3),
        "acme.schedule.preview",
        {"key": "a", "count": 3},
        VIEW | {"instants": []},
    ),
    (
        lambda client: client.why(key="a", at=AT),
        "acme.schedule.why",
        {"key": "a", "at": AT},
        VIEW,
    ),
]


@pytest.mark.parametrize(("call", "routing_key", "body", "response"), CALLS)
async def test_call_sends_one_request(
    transport: "FakeTransport",
    call: "Callable[[Client], Awaitable[Any]]",
    routing_key: str,
    body: dict[str, Any],
    response: dict[str, Any],
) -> None:
    transport.respond = lambda _: response

    await call(Client(transport, tenant="acme"))

    [(address, sent)] = transport.requests
    assert (address.rpartition(" ")[2], sent) == (routing_key, body)


async def test_bulk_operation_with_an_empty_filter_is_not_sent(transport: "FakeTransport") -> None:
    with pytest.raises(InvalidInput, match="at least one of tag"):
        await Client(transport).cancel_all({}, request_id="r-1")

    assert transport.requests == []
