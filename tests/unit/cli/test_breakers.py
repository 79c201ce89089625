"""`harebell breaker`: under the name of what is no tenant's, whatever the tenant."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

HOST = "http:acme.example"


def answered(asked: "Asked") -> dict[str, Any]:
    return {"ok": True, "downstream": asked.body["downstream"], "status": asked.verb}


@pytest.mark.requirement("S113")
def test_breakers_are_listed_with_what_they_do(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    line = {"downstream": HOST, "acts": "open", "failed": 12, "attempts": 20, "note": "a roof"}
    harebell.answer = lambda _: {"ok": True, "items": [line]}

    result = cli("--tenant", "acme", "breaker", "list", "-o", "json")

    assert all(str(value) in result.stdout for value in line.values())
    assert (harebell.asked[0].tenant, harebell.asked[0].verb) == ("harebell", "breaker.list")


def test_no_breaker_is_nothing_matched(cli: "CommandLine") -> None:
    assert cli("breaker", "list").exit_code == 3


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("words", "verb", "body"),
    [
        (["open", HOST], "breaker.open", {}),
        (
            ["open", "https://acme.example/hook?x=1", "--for", "2h", "--note", "a roof"],
            "breaker.open",
            {"until": "2026-11-20T16:00:00Z", "note": "a roof"},
        ),
        (
            ["close", HOST, "--for", "2026-12-01T00:00:00Z"],
            "breaker.close",
            {"until": "2026-12-01T00:00:00Z"},
        ),
        (["auto", HOST, "--note", "done"], "breaker.reset", {"note": "done"}),
    ],
)
def test_what_is_forced_is_sent_and_told(
    cli: "CommandLine",
    harebell: "FakeHarebell",
    words: list[str],
    verb: str,
    body: dict[str, Any],
) -> None:
    harebell.answer = answered

    result = cli("breaker", *words)

    (asked,) = harebell.asked
    said = {name: value for name, value in asked.body.items() if value is not None}
    assert (asked.tenant, asked.verb, said) == ("harebell", verb, {"downstream": HOST, **body})
    assert (result.exit_code, verb in result.stdout) == (0, True)


def test_what_no_target_may_be_called_is_not_sent(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    result = cli("breaker", "open", "acme.example")

    assert (result.exit_code, harebell.asked) == (2, [])
    assert "http:acme.example" in result.stderr
