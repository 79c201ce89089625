"""Commands and queries of change, as keyword arguments and as what is sent."""

from typing import TYPE_CHECKING, Any

import pytest

from harebell.client import Client, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.client.conftest import FakeCourier

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
RUN = f"{ID}@20261120T140000000Z"
AT = "2026-12-25T09:00:00Z"
ONE = {"ok": True, "id": ID, "version": 1, "status": "done", "state": "active"}
MANY = {"ok": True, "receipt": "r-1", "changed": [ID]}
FOUND = {"ok": True, "item": {"versions": [{"version": 1}]}}

CALLS: list[tuple["Callable[[Client], Awaitable[Any]]", str, dict[str, Any], dict[str, Any]]] = [
    (lambda h: h.patch({"owner": None}, key="a"), "schedule.patch",
     {"key": "a", "set": {"owner": None}}, ONE),
    (lambda h: h.pause(key="a", until=AT), "schedule.pause", {"key": "a", "until": AT}, ONE),
    (lambda h: h.skip(AT, key="a"), "schedule.skip", {"key": "a", "at": AT}, ONE),
    (lambda h: h.trigger(key="a", overlap="queue"), "schedule.trigger",
     {"key": "a", "overlap": "queue"}, ONE),
    (lambda h: h.backfill(AT, AT, key="a"), "schedule.backfill",
     {"key": "a", "from": AT, "to": AT, "max": 100, "dry_run": False}, ONE),
    (lambda h: h.pause_all({"tag": "x"}, request_id="r-1"), "schedule.pause",
     {"select": {"tag": "x"}, "request_id": "r-1"}, MANY),
    (lambda h: h.resume_all(bulk_operation_id="r-1", request_id="r-2"), "schedule.resume",
     {"receipt": "r-1", "request_id": "r-2"}, MANY),
    (lambda h: h.cancel_all({"owner": "x"}, request_id="r-1"), "schedule.cancel",
     {"select": {"owner": "x"}, "request_id": "r-1"}, MANY),
    (lambda h: h.resolve_run(RUN, "retry"), "run.resolve", {"run_id": RUN, "as": "retry"},
     {"ok": True, "run_id": RUN, "status": "resolved", "state": "staged"}),
    (lambda h: h.versions(key="a"), "schedule.versions", {"key": "a"}, FOUND),
    (lambda h: h.preview(key="a", count=3), "schedule.preview", {"key": "a", "count": 3}, FOUND),
    (lambda h: h.why(key="a", at=AT), "schedule.why", {"key": "a", "at": AT}, FOUND),
]  # fmt: skip


@pytest.mark.parametrize(("call", "verb", "body", "answer"), CALLS)
async def test_each_call_is_one_question(
    courier: "FakeCourier",
    call: "Callable[[Client], Awaitable[Any]]",
    verb: str,
    body: dict[str, Any],
    answer: dict[str, Any],
) -> None:
    courier.answer = lambda _: answer

    await call(Client(courier, tenant="acme"))

    [(key, asked)] = courier.asked
    assert (key.rpartition(" ")[2], asked) == (f"acme.{verb}", body)


async def test_a_selector_of_nothing_is_not_sent(courier: "FakeCourier") -> None:
    with pytest.raises(InvalidInput, match="at least one of tag"):
        await Client(courier).cancel_all({}, request_id="r-1")

    assert courier.asked == []
