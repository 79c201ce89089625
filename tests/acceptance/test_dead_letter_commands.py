"""Each verb of `harebell dlq` on a running stack. Canary replays are in test_dead_letters.py."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.acceptance.terminal import Terminal
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

ONCE: Final = {"max_attempts": 1}
MAILS: Final = {"task": {"name": "acme.mail", "args": {}}}  # no executor has this task
HOOKS: Final = 4  # dead runs with this target, besides one dead run of MAILS
TAG: Final = "till"
LONG_AGO: Final = "--until 1h"


@pytest.fixture
async def terminal(tenant: Tenant, target: Target) -> "DeadLetterTerminal":
    """Return a terminal of a tenant with five dead letters in two failure groups."""
    hook = target.http("hook", broken="hook")
    await tenant.harebell.put_many(
        [
            {
                "key": f"hook-{n}",
                "when": {"now": True},
                "target": hook,
                "retry": ONCE,
                "tags": [TAG],
            }
            for n in range(HOOKS)
        ]
    )
    await tenant.put("mail", {"now": True}, MAILS, retry=ONCE)
    opened = DeadLetterTerminal(tenant, target)
    await opened.until_open(HOOKS + 1)
    return opened


class DeadLetterTerminal:
    """A terminal that runs `harebell dlq` for one tenant."""

    def __init__(self, tenant: Tenant, target: Target) -> None:
        self.tenant = tenant
        self.target = target
        self._terminal = Terminal(
            {"HAREBELL_AMQP_URL": tenant.stack.amqp_url, "HAREBELL_TENANT": tenant.name}
        )

    async def run_json(self, command: str) -> Any:
        output = await self._terminal.run(f"harebell dlq {command} -o json")
        return orjson.loads(output)

    async def run(self, command: str) -> str:
        return await self._terminal.run(f"harebell dlq {command}")

    async def run_until(self, command: str, text: str) -> str:
        return await self._terminal.run_until(f"harebell dlq {command}", text)

    async def dead_letters(self, options: str = "") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = await self.run_json(f"list {options}")
        return listed

    async def group(self, error: str) -> str:
        [found] = [
            each for each in await self.run_json("groups list") if each["error_code"] == error
        ]
        return str(found["id"])

    async def until_open(self, number: int) -> None:
        """Wait with the client, because each command is a process that needs half a second."""

        async def is_reached() -> bool:
            found = [each async for each in self.tenant.harebell.dead_letters()]
            return len(found) == number

        await until(is_reached, what=f"{number} dead letters")

    async def until_state(self, replay_job: str, state: str) -> dict[str, Any]:
        """Wait with the client for that state, then return the output of the command."""

        async def is_reached() -> bool:
            return (await self.tenant.harebell.replay_job(replay_job)).state == state

        await until(is_reached, what=f"the state {state} of {replay_job}")
        result: dict[str, Any] = await self.run_json(f"replays get {replay_job}")
        assert result["state"] == state
        return result


@pytest.mark.requirement("S112")
async def test_list_applies_filters_and_get_shows_every_field(terminal: DeadLetterTerminal) -> None:
    hooks, mails = (
        await terminal.dead_letters("--error http_503"),
        await terminal.dead_letters("--key mail"),
    )
    shown = await terminal.run_json(f"get {mails[0]['id']}")

    assert [len(each) for each in (hooks, mails)] == [HOOKS, 1]
    assert len(await terminal.dead_letters(f"--tag {TAG}")) == HOOKS
    assert len(await terminal.dead_letters(f"--group {hooks[0]['group']}")) == HOOKS
    assert len(await terminal.dead_letters("--since 1h --limit 2")) == 2
    assert await terminal.dead_letters(LONG_AGO) == await terminal.dead_letters("--replayed") == []
    assert (shown["key"], shown["error_code"], shown["attempts"]) == ("mail", "unknown_task", 1)
    assert shown["payload"]["target"] == MAILS


@pytest.mark.requirement("ASK-25")
async def test_groups_can_be_noted_muted_archived_and_reopened(
    terminal: DeadLetterTerminal,
) -> None:
    hook, mail = await terminal.group("http_503"), await terminal.group("unknown_task")

    await terminal.run_json(f'groups note {hook} "their certificate"')
    await terminal.run_json(f"groups mute {hook} --until 1h")
    await terminal.run_json(f"groups archive {mail}")
    open_groups = await terminal.run_json("groups list")
    all_groups = {each["id"]: each for each in await terminal.run_json("groups list --state all")}
    await terminal.run_json(f"groups reopen {hook} {mail}")

    assert open_groups == []
    assert (all_groups[hook]["state"], all_groups[hook]["note"]) == ("muted", "their certificate")
    assert (all_groups[hook]["open"], all_groups[mail]["state"]) == (HOOKS, "archived")
    assert {each["id"] for each in await terminal.run_json("groups list")} == {hook, mail}


@pytest.mark.requirement("S112")
async def test_dead_letters_can_be_exported_discarded_and_imported(
    terminal: DeadLetterTerminal, tmp_path: Path
) -> None:
    exported = (await terminal.run("export --error http_503")).splitlines()
    file = tmp_path / "dead-letters.jsonl"
    file.write_text("\n".join(exported))
    [mail] = await terminal.dead_letters("--key mail")

    await terminal.run_json(f"discard {mail['id']} --note obsolete")
    imported = await terminal.run(f"import {file}")

    assert {orjson.loads(line)["key"] for line in exported} == {f"hook-{n}" for n in range(HOOKS)}
    assert [each["id"] for each in await terminal.dead_letters("--state discarded")] == [mail["id"]]
    assert f"{HOOKS} dead letters are imported or already present, 0 are not imported" in imported
    assert len(await terminal.dead_letters()) == HOOKS


@pytest.mark.requirement("S112")
async def test_watch_shows_each_new_dead_letter(terminal: DeadLetterTerminal) -> None:
    """New dead letters arrive during the test, because the first poll shows none of the old ones.

    On a busy machine, the first poll can come later than the first new dead letter.
    """

    async def add_dead_letters() -> None:
        for number in count():
            await terminal.tenant.put(f"late-{number}", {"now": True}, MAILS, retry=ONCE)
            await asyncio.sleep(1)

    adding = asyncio.create_task(add_dead_letters())
    try:
        output = await terminal.run_until("watch --every 0.5", "late-")
    finally:
        adding.cancel()

    assert "hook-" not in output


@pytest.mark.long
@pytest.mark.requirement("ASK-2")
async def test_replay_job_can_be_paused_resumed_and_aborted_and_keeps_its_items(
    terminal: DeadLetterTerminal,
) -> None:
    terminal.target.fix("hook")
    started = await terminal.run_json("replay --error http_503 --rate 2/m --note mended")
    replay_job = started["id"]

    await terminal.run_json(f"replays pause {replay_job}")
    paused = await terminal.until_state(replay_job, "paused")
    await terminal.run_json(f"replays resume {replay_job}")
    await terminal.until_state(replay_job, "running")
    await terminal.run_json(f"replays abort {replay_job}")
    aborted = await terminal.until_state(replay_job, "aborted")
    items = (await terminal.run_json(f"replays get {replay_job} --items"))["items"]

    assert (started["total"], paused["note"]) == (HOOKS, "mended")
    assert [each["id"] for each in await terminal.run_json("replays list")] == [replay_job]
    assert len(items) == HOOKS
    waiting = [each for each in items if each["status"] == "waiting"]
    assert len(waiting) == aborted["remaining"]
    assert len(await terminal.dead_letters("--error http_503")) == aborted["remaining"]


@pytest.mark.requirement("S112")
async def test_dry_run_changes_nothing_and_a_replay_can_use_another_pool(
    terminal: DeadLetterTerminal,
) -> None:
    dry = await terminal.run_json("replay --all --dry-run")
    jobs = await terminal.run_json("replays list")
    [mail] = await terminal.dead_letters("--key mail")

    await terminal.run_json(f"replay {mail['id']} --pool mailers")

    await terminal.until_open(HOOKS)
    run = await terminal.tenant.run(mail["run_id"])
    assert (dry["total"], jobs) == (HOOKS + 1, [])
    assert (run["pool"], run["replay_number"]) == ("mailers", 1)
