"""RabbitMQ's management UI as a person uses it, in Debian's Chromium."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Locator, Page, ViewportSize, async_playwright, expect
from playwright.async_api import TimeoutError as NotInTime
from tests.acceptance.large_table import SECRET
from tests.acceptance.pictures import LARGEST

PATIENCE: Final = 60_000.0  # milliseconds; the UI refreshes every 5 s, its numbers as often
CLOSE: Final = 1_000.0  # milliseconds for a notice to be clicked away
WIDTH: Final = 1200
HEAD: Final = 165  # pixels, of the page's head, which stays over what is scrolled
HEIGHT: Final = 700  # of a picture, where nothing else is said


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    found = shutil.which("chromium")
    assert found, "no chromium: it is Debian's package; bootstrap.sh tests brings it"
    async with async_playwright() as playwright:
        # the sandbox refuses root; the pages are those of a broker of our own
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(frozen=True)
class Console:
    """`vhost` is the one that is looked at; `pictures`: where they go."""

    page: Page
    url: str
    vhost: str
    pictures: Path

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, user: str, vhost: str, pictures: Path
    ) -> AsyncIterator["Console"]:
        """Logged in."""
        async with chromium() as browser:
            size = ViewportSize(width=WIDTH, height=HEIGHT)
            # RabbitMQ 4.3 forbids its pages to evaluate text, which is how playwright waits
            page = await browser.new_page(viewport=size, bypass_csp=True)
            page.set_default_timeout(PATIENCE)
            await page.goto(url)
            await page.fill("input[name=username]", user)
            await page.fill("input[name=password]", SECRET)
            await page.click("input[type=submit]")
            await expect(page.locator("#logout")).to_be_visible(timeout=PATIENCE)
            yield cls(page, url, vhost, pictures)

    async def queues(self, containing: str) -> None:
        """The list, filtered."""
        await self._go("queues", "Queues")
        await self.page.fill("#queues-name", containing)
        await self.page.press("#queues-name", "Enter")

    async def connections(self) -> None:
        await self._go("connections", "Connections")

    async def queue(self, name: str) -> None:
        """It is not refreshed: the page may load itself anew, without the messages it showed."""
        await self.page.locator("#update-every").select_option(label="Do not refresh")
        await self._go(f"queues/{self.vhost}/{name}", f"Queue {name}")

    async def exchange(self, name: str) -> None:
        await self._go(f"exchanges/{self.vhost}/{name}", f"Exchange: {name}")

    @property
    def _box(self) -> Locator:
        return self.page.locator(".form-popup-info, .form-popup-warn").first

    def row(self, text: str) -> Locator:
        """Of the table that is shown."""
        return self.page.locator("table.list tbody tr").filter(has_text=text)

    async def shows(self, part: Locator, text: str) -> None:
        await expect(part).to_contain_text(text, timeout=PATIENCE)

    async def unfold(self, section: str) -> Locator:
        """The part of the page below that heading."""
        part = self.page.locator("div.section, div.section-hidden").filter(
            has=self.page.get_by_role("heading", name=section)
        )
        body = part.locator("div.hider").first
        if not await body.is_visible():
            await part.locator("h2").first.click()
        await expect(body).to_be_visible(timeout=PATIENCE)
        return body

    async def publish(self, routing_key: str, payload: str) -> None:
        """Fill in the form of the exchange that is shown; `send` publishes it."""
        form = await self.unfold("Publish message")
        await form.locator("input[name=routing_key]").fill(routing_key)
        await form.locator("textarea[name=payload]").fill(payload)

    async def send(self) -> None:
        await self.page.click("input[value='Publish message']")

    async def notice(self) -> Locator:
        """What the UI says of what was just done, in a box over the page."""
        await expect(self._box).to_be_visible(timeout=PATIENCE)
        return self._box

    async def get_messages(self, number: int) -> Locator:
        """With requeue, as the form has it from the start: they stay in the queue."""
        form = await self.unfold("Get messages")
        assert await form.locator("select[name=ackmode]").input_value() == "ack_requeue_true"
        await form.locator("input[name=count]").fill(str(number))
        shown = form.locator("#msg-wrapper")
        await shown.evaluate("shown => shown.replaceChildren()")
        answer = shown.locator("div.box").first.or_(self._box)
        async with asyncio.timeout(PATIENCE / 1000):
            while not await shown.locator("div.box").count():
                await self.close_notice()  # empty: what was looked at is still on its way back
                await self.page.click("input[value='Get Message(s)']")
                await expect(answer).to_be_visible(timeout=PATIENCE)
        await self.page.wait_for_function("!jQuery(':animated').length")
        return shown

    async def close_notice(self) -> None:
        if await self._box.count():
            with suppress(NotInTime):  # it may be fading by itself
                await self._box.get_by_text("Close").click(timeout=CLOSE)
            await expect(self._box).to_have_count(0, timeout=PATIENCE)

    async def picture(self, name: str, *, at: Locator | None = None, height: int = HEIGHT) -> None:
        """Of the page from its top, or from that part on."""
        await self.page.set_viewport_size({"width": WIDTH, "height": height})
        if at is None:
            await self.page.evaluate("scrollTo(0, 0)")
        else:
            top = "part.getBoundingClientRect().top + scrollY"
            await at.evaluate(f"part => scrollTo(0, {top} - {HEAD})")
        image = await self.page.screenshot(animations="disabled")
        assert len(image) < LARGEST, f"{name} is too large for the repository"
        self.pictures.mkdir(parents=True, exist_ok=True)
        (self.pictures / f"{name}.png").write_bytes(image)

    async def _go(self, place: str, heading: str) -> None:
        await self.page.goto(f"{self.url}/#/{place}")
        title = self.page.get_by_role("heading", level=1, name=heading)
        await expect(title).to_be_visible(timeout=PATIENCE)
