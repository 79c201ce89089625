"""Each verb of `harebell dlq`, typed on a running stack; replays with a canary are in test_desk."""

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, until
from tests.acceptance.terminal import Terminal

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ONCE: Final = {"max_attempts": 1}
MAILS: Final = {"task": {"name": "acme.mail", "args": {}}}  # which no executor has
HOOKS: Final = 4  # runs that die of the hook, and one of the mail
TAG: Final = "till"
OLD: Final = "--until 1h"


@pytest.fixture
async def desk(tenant: Tenant, target: Target) -> "Desk":
    """With four letters of one failure and one of another."""
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
    opened = Desk(tenant, target)
    await opened.until_open(HOOKS + 1)
    return opened


class Desk:
    """Typed commands, and what they say in JSON."""

    def __init__(self, tenant: Tenant, target: Target) -> None:
        self.tenant = tenant
        self.target = target
        self._terminal = Terminal(
            {"HAREBELL_AMQP_URL": tenant.stack.amqp_url, "HAREBELL_TENANT": tenant.name}
        )

    async def type(self, command: str) -> Any:
        output = await self._terminal.type(f"harebell dlq {command} -o json")
        return orjson.loads(output)

    async def say(self, command: str) -> str:
        return await self._terminal.type(f"harebell dlq {command}")

    async def dead_letters(self, options: str = "") -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = await self.type(f"list {options}")
        return listed

    async def group(self, error: str) -> str:
        [found] = [each for each in await self.type("groups list") if each["error_code"] == error]
        return str(found["id"])

    async def until_open(self, number: int) -> None:
        async def there() -> bool:
            return len(await self.dead_letters()) == number

        await until(there, what=f"{number} letters")

    async def until_job(self, job: str, **wanted: Any) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            told: dict[str, Any] = await self.type(f"replays get {job}")
            return told if wanted.items() <= told.items() else None

        found = await until(there, what=f"{job} with {wanted}")
        assert found is not None
        return found


@pytest.mark.requirement("S112")
async def test_list_takes_filters_and_show_tells_all(desk: Desk) -> None:
    hooks, mails = await desk.dead_letters("--error http_503"), await desk.dead_letters("--key mail")
    shown = await desk.type(f"get {mails[0]['id']}")

    assert [len(each) for each in (hooks, mails)] == [HOOKS, 1]
    assert len(await desk.dead_letters(f"--tag {TAG}")) == HOOKS
    assert len(await desk.dead_letters(f"--group {hooks[0]['group']}")) == HOOKS
    assert len(await desk.dead_letters("--since 1h --limit 2")) == 2
    assert await desk.dead_letters(OLD) == await desk.dead_letters("--replayed") == []
    assert (shown["key"], shown["error_code"], shown["attempts"]) == ("mail", "unknown_task", 1)
    assert shown["payload"]["target"] == MAILS


@pytest.mark.requirement("ASK-25")
async def test_groups_are_noted_muted_archived_and_reopened(desk: Desk) -> None:
    hook, mail = await desk.group("http_503"), await desk.group("unknown_task")

    await desk.type(f'groups note {hook} "their certificate"')
    await desk.type(f"groups mute {hook} --until 1h")
    await desk.type(f"groups archive {mail}")
    away = await desk.type("groups list")
    every = {each["id"]: each for each in await desk.type("groups list --state all")}
    await desk.type(f"groups reopen {hook} {mail}")

    assert away == []
    assert (every[hook]["state"], every[hook]["note"]) == ("muted", "their certificate")
    assert (every[hook]["open"], every[mail]["state"]) == (HOOKS, "archived")
    assert {each["id"] for each in await desk.type("groups list")} == {hook, mail}


@pytest.mark.requirement("S112")
async def test_letters_are_exported_dropped_and_imported(desk: Desk, tmp_path: Path) -> None:
    lines = (await desk.say("export --error http_503")).splitlines()
    file = tmp_path / "letters.jsonl"
    file.write_text("\n".join(lines))
    [mail] = await desk.dead_letters("--key mail")

    await desk.type(f"discard {mail['id']} --note obsolete")
    again = await desk.say(f"import {file}")

    assert {orjson.loads(line)["key"] for line in lines} == {f"hook-{n}" for n in range(HOOKS)}
    assert [each["id"] for each in await desk.dead_letters("--state discarded")] == [mail["id"]]
    assert f"{HOOKS} dead letters are imported or already present, 0 are not imported" in again
    assert len(await desk.dead_letters()) == HOOKS


@pytest.mark.requirement("S112")
async def test_watch_tells_letters_as_they_come(desk: Desk) -> None:
    watching = asyncio.create_task(desk.say("watch --every 0.5 --max-polls 20"))
    await asyncio.sleep(1)
    await desk.tenant.put("late", {"now": True}, MAILS, retry=ONCE)

    assert "late" in await watching


@pytest.mark.requirement("ASK-2")
async def test_a_replay_is_paused_resumed_and_aborted_and_keeps_a_record(desk: Desk) -> None:
    desk.target.fix("hook")
    started = await desk.type("replay --error http_503 --rate 30/m --note mended")
    job = started["id"]

    await desk.type(f"replays pause {job}")
    paused = await desk.until_job(job, state="paused")
    await desk.type(f"replays resume {job}")
    await desk.until_job(job, state="running")
    await desk.type(f"replays abort {job}")
    aborted = await desk.until_job(job, state="aborted")
    items = (await desk.type(f"replays get {job} --items"))["items"]

    assert (started["total"], paused["note"]) == (HOOKS, "mended")
    assert [each["id"] for each in await desk.type("replays list")] == [job]
    assert len(items) == HOOKS
    waiting = [each for each in items if each["status"] == "waiting"]
    assert len(waiting) == aborted["remaining"]
    assert len(await desk.dead_letters("--error http_503")) == aborted["remaining"]


@pytest.mark.requirement("S112")
async def test_a_dry_run_changes_nothing_and_a_replay_may_go_to_another_pool(
    desk: Desk,
) -> None:
    dry = await desk.type("replay --all --dry-run")
    jobs = await desk.type("replays list")
    [mail] = await desk.dead_letters("--key mail")

    await desk.type(f"replay {mail['id']} --pool mailers")

    await desk.until_open(HOOKS)
    run = await desk.tenant.run(mail["run_id"])
    assert (dry["total"], jobs) == (HOOKS + 1, [])
    assert (run["pool"], run["replay_number"]) == ("mailers", 1)
