"""TODO: describe this module."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

GROUP = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
OTHER = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e12"


@pytest.mark.requirement("ASK-25")
def test_groups_are_listed_with_what_they_are(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    line = {"id": GROUP, "open": 7, "trend": "rising", "message": "<n> Service Unavailable"}
    harebell.answer = lambda _: {"ok": True, "items": [line]}

    result = cli("dlq", "groups", "--state", "all")

    assert all(str(value) in result.stdout for value in line.values())
    assert harebell.asked[0].body == {"state": "all", "limit": 50}


def test_no_group_is_nothing_matched(cli: "CommandLine") -> None:
    assert cli("dlq", "groups").exit_code == 3


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("words", "sent", "status"),
    [
        (["note", GROUP, "their fault"], ("dlq.group.note", {"note": "their fault"}), "noted"),
        (
            ["mute", GROUP, "--until", "2h", "--note", "tomorrow"],
            ("dlq.group.mute", {"note": "tomorrow", "until": "2026-11-20T16:00:00Z"}),
            "muted",
        ),
        (["archive", GROUP], ("dlq.group.archive", {}), "archived"),
        (["reopen", GROUP], ("dlq.group.reopen", {}), "open"),
    ],
)
def test_what_is_decided_of_a_group_is_sent_and_told(
    cli: "CommandLine",
    harebell: "FakeHarebell",
    words: list[str],
    sent: tuple[str, dict[str, Any]],
    status: str,
) -> None:
    harebell.answer = lambda _: {"ok": True, "results": {GROUP: status}}

    result = cli("dlq", *words)

    assert (result.exit_code, result.stdout.split()[2:]) == (0, [GROUP, status])
    verb, body = sent
    [asked] = harebell.asked
    assert (asked.verb, asked.body) == (verb, {"groups": [GROUP], **body})


def test_groups_that_are_not_there_make_it_partly_done(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    def answer(asked: "Asked") -> dict[str, Any]:
        first, second = asked.body["groups"]
        return {"ok": True, "results": {first: "archived", second: "not_found"}}

    harebell.answer = answer

    assert cli("dlq", "archive", GROUP, OTHER).exit_code == 4
