"""`harebell breaker`: every request except `list --own` belongs to the operations tenant."""

from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request

HOST = "acme.example:443"


def respond(request: Request) -> dict[str, Any]:
    return {"ok": True, "downstream": request.body["downstream"], "status": request.verb}


@pytest.mark.requirement("S113")
def test_breaker_list_prints_each_breaker(cli: CommandLine, broker: FakeBroker) -> None:
    row = {
        "downstream": HOST,
        "effective_state": "open",
        "state": "open",
        "failed": 12,
        "attempts": 20,
        "note": "new roof",
    }
    broker.respond = lambda _: {"ok": True, "items": [row]}

    result = cli("--tenant", "acme", "breaker", "list", "-o", "json")

    assert all(str(value) in result.stdout for value in row.values())
    assert (broker.requests[0].tenant, broker.requests[0].verb) == ("harebell", "breaker.list")


def test_breaker_list_with_own_asks_for_the_breakers_of_the_tenant(
    cli: CommandLine, broker: FakeBroker
) -> None:
    cli("--tenant", "acme", "breaker", "list", "--own")

    assert (broker.requests[0].tenant, broker.requests[0].verb) == ("acme", "breaker.list")


def test_breaker_list_exits_with_no_match_when_no_breaker_exists(cli: CommandLine) -> None:
    assert cli("breaker", "list").exit_code == 3


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("arguments", "verb", "fields"),
    [
        (["open", HOST], "breaker.open", {}),
        (
            ["open", "https://acme.example/hook?x=1", "--until", "2h", "--note", "new roof"],
            "breaker.open",
            {"until": "2026-11-20T16:00:00Z", "note": "new roof"},
        ),
        (
            ["close", HOST, "--until", "2026-12-01T00:00:00Z"],
            "breaker.close",
            {"until": "2026-12-01T00:00:00Z"},
        ),
        (["reset", HOST, "--note", "done"], "breaker.reset", {"note": "done"}),
        (["open", HOST, "--for-tenant", "acme"], "breaker.open", {"for_tenant": "acme"}),
        (["close", HOST, "--for-tenant", "acme"], "breaker.close", {"for_tenant": "acme"}),
        (["reset", HOST, "--for-tenant", "acme"], "breaker.reset", {"for_tenant": "acme"}),
    ],
)
def test_breaker_command_sends_its_fields_and_prints_the_response(
    cli: CommandLine,
    broker: FakeBroker,
    arguments: list[str],
    verb: str,
    fields: dict[str, Any],
) -> None:
    broker.respond = respond

    result = cli("breaker", *arguments)

    (request,) = broker.requests
    sent = {name: value for name, value in request.body.items() if value is not None}
    assert (request.tenant, request.verb) == ("harebell", verb)
    assert sent == {"downstream": HOST, **fields}
    assert (result.exit_code, verb in result.stdout) == (0, True)


def test_breaker_open_sends_nothing_when_the_target_has_no_kind(
    cli: CommandLine, broker: FakeBroker
) -> None:
    result = cli("breaker", "open", "acme.example")

    assert (result.exit_code, broker.requests) == (2, [])
    assert "acme.example:443" in result.stderr
