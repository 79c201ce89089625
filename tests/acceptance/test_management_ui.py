"""The management UI of RabbitMQ for an operator, with the pictures of its guide."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import expect
from tests.acceptance.management_ui import WAIT_TIMEOUT_MS, ManagementUi
from tests.acceptance.pictures import picture_folder
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

VHOST: Final = "harebell"
UNSERVED_POOL: Final = "reports"  # a pool without executors until a test starts one
BACKLOG: Final = {"high": 40, "normal": 200, "low": 100}  # runs by lane
PRIORITIES: Final = {"high": 9, "normal": 5, "low": 2}
DEAD: Final = 6  # dead letters
POLLS: Final = 25  # RabbitMQ 4 would drop a message of a plain quorum queue at the twentieth
SINGLE_ATTEMPT: Final = {"max_attempts": 1}


@dataclass(frozen=True)
class Tour:
    production: Production
    servers: Servers
    pictures: Path

    def ui(self, user: str) -> AbstractAsyncContextManager[ManagementUi]:
        private = self.servers.private
        assert private is not None
        url = private.broker.management_url
        return ManagementUi.open(url, user=user, vhost=VHOST, pictures=self.pictures)

    def depth(self, queue: str) -> int:
        """Return the messages of a queue, which the management API counts with some delay."""
        found = self.servers.management("GET", f"queues/{VHOST}/{queue}")
        return int(found.get("messages", 0))


@pytest.fixture(scope="module")
def tour(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    root = tmp_path_factory.mktemp("tour")
    with Production.open(servers, root, vhost=VHOST, pools=[UNSERVED_POOL]) as production:
        production.start()
        servers.management("PUT", "cluster-name", {"name": "harebell"})
        yield Tour(production, servers, picture_folder(root / "pictures"))


@pytest.fixture
async def default(tour: Tour) -> AsyncIterator[Tenant]:
    """Yield the tenant `default`, for which the operator publishes the commands."""
    production = tour.production
    async with (
        production.stack.tenant("default") as opened,
        Client.connect(production.url("harebell_operator"), tenant="default") as operator,
    ):
        yield replace(opened, harebell=operator)


@pytest.fixture
def target(whole_target: Target) -> Target:
    """Return a target whose URLs are short enough for a picture."""
    return replace(whole_target, folder="tour/")


def backlog(target: Target) -> list[dict[str, Any]]:
    return [
        {
            "key": f"report-{lane}-{number}",
            "when": {"now": True},
            "pool": UNSERVED_POOL,
            "priority": PRIORITIES[lane],
            "target": target.http("report"),
        }
        for lane, runs in BACKLOG.items()
        for number in range(runs)
    ]


@pytest.mark.requirement("S75")
async def test_management_ui_shows_the_depth_of_each_lane(
    tour: Tour, default: Tenant, target: Target
) -> None:
    items = backlog(target)
    await default.harebell.put_many(items)
    async with tour.ui("harebell_monitor") as ui:
        await ui.queues("harebell.work")
        rows = {lane: ui.row(f"harebell.work.{UNSERVED_POOL}.{lane}") for lane in BACKLOG}
        for row in rows.values():
            await expect(row).to_have_count(1, timeout=WAIT_TIMEOUT_MS)
            await expect(row.locator("td.r").first).not_to_have_text("0", timeout=WAIT_TIMEOUT_MS)
            await ui.shows(row, "harebell-tickets")
        await ui.picture("lanes")

        tour.production.start(ServiceKind.EXECUTOR, number=2, pool=UNSERVED_POOL)
        for row in rows.values():
            await expect(row.locator("td.r").first).to_have_text("0", timeout=WAIT_TIMEOUT_MS)

    await default.until_runs(len(items), "succeeded")


@pytest.mark.requirement("S75")
async def test_management_ui_shows_the_service_of_each_connection(tour: Tour) -> None:
    async with tour.ui("harebell_monitor") as ui:
        await ui.connections()
        for kind in ServiceKind:
            for connection_role in ("consumes", "publishes"):
                row = ui.row(f"{kind}-1 {connection_role}").first
                await ui.shows(row, f"harebell_{kind}")
        await ui.picture("connections", height=640)

        await ui.row("ticker-1 publishes").locator("a").first.click()
        client = await ui.unfold("Client properties")
        for text in ("product Harebell", "service ticker", "instance ticker-1"):
            await expect(client.get_by_role("row", name=text)).to_be_visible(
                timeout=WAIT_TIMEOUT_MS
            )


@pytest.mark.requirement("S75")
async def test_schedule_published_in_the_form_is_accepted_and_runs(
    tour: Tour, target: Target
) -> None:
    async def called() -> bool:
        return bool(target.calls("hello"))

    schedule = {"key": "hello-1", "when": {"after": "5s"}, "target": target.http("hello")}
    async with tour.ui("harebell_operator") as ui:
        await ui.exchange("harebell.commands")
        await ui.publish("default.schedule.put", json.dumps(schedule))
        await ui.picture("publish", at=await ui.unfold("Publish message"), height=560)
        await ui.send()
        await ui.shows(await ui.notice(), "Message published.")

        await until(called, what="a call")
        await ui.queue("harebell.events.recent")
        shown = await ui.get_messages(1_000)
        await ui.shows(shown, "harebell.schedule.created.v1")

    assert [call.ok for call in target.calls("hello")] == [True]


@pytest.mark.requirement("S75")
async def test_recent_events_show_the_reason_of_a_rejected_schedule(
    tour: Tour, target: Target
) -> None:
    invalid = {"key": "hello-2", "when": {"cron": "75 9 * * *"}, "target": target.http("hello")}
    async with tour.ui("harebell_operator") as ui:
        await ui.exchange("harebell.commands")
        await ui.publish("default.schedule.put", json.dumps(invalid))
        await ui.send()
        await ui.notice()
        await ui.close_notice()

        await ui.queue("harebell.events.recent")
        for _ in range(POLLS):
            shown = await ui.get_messages(1_000)
            if "schedule.rejected" in await shown.inner_text():
                break
        rejected = shown.locator("div.box", has_text="schedule.rejected").last
        for text in ("invalid_cron", "when.cron", "from 0 to 59, not 75", "hello-2"):
            await ui.shows(rejected, text)
        await ui.picture("rejected", at=rejected, height=560)


@pytest.mark.requirement("S111")
async def test_dead_letters_do_not_change_when_shown_25_times(
    tour: Tour, default: Tenant, target: Target
) -> None:
    for number in range(DEAD):
        hook = target.http("broken", broken="till")
        await default.put(f"dies-{number}", {"now": True}, hook, retry=SINGLE_ATTEMPT)
    before = await dead_letter_state(tour, default)
    async with tour.ui("harebell_operator") as ui:
        await ui.queue("harebell.dead.recent")
        for _ in range(POLLS):
            shown = await ui.get_messages(1_000)
            await expect(shown.locator("div.box")).to_have_count(DEAD, timeout=WAIT_TIMEOUT_MS)
            await ui.shows(shown, "harebell-run-id")
        await ui.picture("dead", at=shown)

    assert await dead_letter_state(tour, default) == before


async def dead_letter_state(tour: Tour, default: Tenant) -> tuple[object, ...]:
    """Wait for all dead letters and return everything that a query could change."""

    async def are_dead() -> bool:
        is_ingested = tour.depth("harebell.dead") == 0
        depth = tour.depth("harebell.dead.recent")
        return is_ingested and depth == DEAD and len(await default.runs("dead")) == DEAD

    await until(are_dead, within=WAIT_TIMEOUT_MS / 1000, what="dead letters")
    rows = await default.ledger.fetch("SELECT id, state FROM dead_letters ORDER BY id")
    dead_letters = [tuple(row) for row in rows]
    assert len(dead_letters) == DEAD
    runs = [(run["state"], run["seq"], run["attempt"]) for run in await default.runs()]
    return dead_letters, runs


@pytest.mark.requirement("S75")
async def test_monitor_user_sees_queues_and_changes_nothing(tour: Tour) -> None:
    before = tour.depth("harebell.dead.recent")
    async with tour.ui("harebell_monitor") as ui:
        await ui.exchange("harebell.commands")
        await ui.publish("default.schedule.put", "{}")
        await ui.send()
        await ui.shows(await ui.notice(), "refused")

        await ui.queue("harebell.dead.recent")
        await ui.unfold("Get messages")
        await ui.page.click("input[value='Get Message(s)']")
        await ui.shows(await ui.notice(), "refused")

    assert tour.depth("harebell.dead.recent") == before
