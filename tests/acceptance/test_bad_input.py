"""Invalid commands of a foreign client get a response with field and reason and store nothing."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import Tenant, now

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOOK = {"http": {"url": "https://acme.example/hook"}}
GOOD: dict[str, Any] = {"key": "hello", "when": {"after": "1h"}, "target": HOOK}
EXPIRED_TIME = (now() - timedelta(hours=1, minutes=1)).isoformat()


def put(**fields: Any) -> bytes:
    return orjson.dumps({**GOOD, **fields})


def put_with_body(body: Any) -> bytes:
    return put(target={"http": {"url": "https://acme.example/hook", **body}})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD = {
    "not JSON": (b"{when: now}", "not_json", None),
    "a wrong type": (put(priority="high"), "invalid", "priority"),
    "an unknown field": (put(colour="blue"), "unknown_field", "colour"),
    "a naive time": (put(when={"at": "2026-11-20T15:00:00"}), "naive_instant", "when.at"),
    "an unknown zone": (
        put(when={"cron": "0 9 * * *", "timezone": "Mars/Olympus"}),
        "unknown_timezone",
        "when.timezone",
    ),
    "a bad cron": (put(when={"cron": "75 9 * * *"}), "invalid_cron", "when.cron"),
    "a cron without a time": (put(when={"cron": "0 0 30 2 *"}), "invalid_cron", "when.cron"),
    "two whens": (put(when={"now": True, "after": "5m"}), "invalid_when", "when"),
    "an unknown target": (put(target={"ftp": {}}), "invalid_target", "target"),
    "a body too large": (b" " * (1024 * 1024 + 1), "too_large", None),
    "a payload too large": (put_with_body({"text": "x" * 65_537}), "too_large", "target.http"),
    "a payload too deep": (put_with_body({"json": nested(33)}), "too_deep", "target.http.json"),
    "a NUL": (put(metadata={"note": "a\0b"}), "nul_character", "metadata.note"),
    "a lone surrogate": (rb'{"key": "\ud800"}', "not_json", None),
    "an integer beyond 64 bits": (
        put(metadata={"n": 0}).replace(b'"n":0', b'"n":18446744073709551616'),
        "integer_too_long",
        None,
    ),
    "another tenant": (put(tenant="globex"), "foreign_tenant", "tenant"),
    "a time long past": (put(when={"at": EXPIRED_TIME}), "too_late", "when.at"),
    "a private address": (
        put(target={"http": {"url": "http://10.0.0.7/"}}),
        "private_address",
        "target.http.url",
    ),
}


async def stored_rows(tenant: Tenant) -> int:
    count: int = await tenant.ledger.fetchval(
        "SELECT (SELECT count(*) FROM schedules WHERE tenant = $1)"
        " + (SELECT count(*) FROM runs WHERE tenant = $1)",
        tenant.name,
    )
    return count


@pytest.mark.requirement("S23", "S24")
@pytest.mark.parametrize(("body", "code", "field"), BAD.values(), ids=BAD)
async def test_invalid_input_gets_code_field_and_reason_and_stores_no_row(
    body: bytes, code: str, field: str | None, tenant: Tenant
) -> None:
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        response = await amqp.request("schedule.put", body)

    assert response["ok"] is False
    assert (response["error"]["code"], response["error"].get("field")) == (code, field)
    assert response["error"]["reason"]
    assert await stored_rows(tenant) == 0


async def test_array_stores_valid_items_and_rejects_invalid_items_by_index(
    tenant: Tenant,
) -> None:
    first, last = put(key="first"), put(key="last")
    body = b"[" + b",".join([first, put(when={}), last, put(colour="blue")]) + b"]"

    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        responses = await amqp.request("schedule.put", body)

    assert [response["ok"] for response in responses] == [True, False, True, False]
    fields = [response["error"]["field"] for response in responses if not response["ok"]]
    assert fields == ["[1].when", "[3].colour"]
    stored = {view.key async for view in tenant.harebell.schedules()}
    assert stored == {"first", "last"}
