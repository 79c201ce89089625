"""The management UI of RabbitMQ in Chromium, with the steps of a person."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Locator, Page, ViewportSize, async_playwright, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout
from tests.acceptance.pictures import MAX_IMAGE_SIZE
from tests.acceptance.production import PASSWORD

WAIT_TIMEOUT_MS: Final = 60_000.0  # milliseconds; the UI and its numbers refresh every 5 s
CLOSE_TIMEOUT_MS: Final = 1_000.0  # milliseconds to close a notice
WIDTH: Final = 1200
HEADER_HEIGHT: Final = 165  # pixels of the page header, which covers the scrolled content
HEIGHT: Final = 700  # pixels of a picture by default


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    found = shutil.which("chromium")
    assert found, "The Debian package chromium is missing. `bootstrap.sh tests` installs it."
    async with async_playwright() as playwright:
        # the sandbox does not run as root, and the pages belong to a private broker
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(frozen=True, kw_only=True)
class ManagementUi:
    """A session in the UI. `vhost` is the shown virtual host, and `pictures` a folder."""

    page: Page
    url: str
    user: str
    vhost: str
    pictures: Path

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, *, user: str, vhost: str, pictures: Path
    ) -> AsyncIterator["ManagementUi"]:
        """Open a browser and log in."""
        async with chromium() as browser:
            size = ViewportSize(width=WIDTH, height=HEIGHT)
            # RabbitMQ 4.3 forbids `eval` in its pages, and playwright needs `eval` to wait
            page = await browser.new_page(viewport=size, bypass_csp=True)
            page.set_default_timeout(WAIT_TIMEOUT_MS)
            await page.goto(url)
            await page.fill("input[name=username]", user)
            await page.fill("input[name=password]", PASSWORD)
            await page.click("input[type=submit]")
            await expect(page.locator("#logout")).to_be_visible(timeout=WAIT_TIMEOUT_MS)
            yield cls(page=page, url=url, user=user, vhost=vhost, pictures=pictures)

    async def queues(self, containing: str) -> None:
        """Open the list of the queues whose names contain that text."""
        await self._go("queues", "Queues")
        await self.page.fill("#queues-name", containing)
        await self.page.press("#queues-name", "Enter")

    async def connections(self) -> None:
        await self._go("connections", "Connections")

    async def queue(self, name: str) -> None:
        """Open the page of a queue without refresh, which would remove the shown messages."""
        await self.page.locator("#update-every").select_option(label="Do not refresh")
        await self._go(f"queues/{self.vhost}/{name}", f"Queue {name}")

    async def exchange(self, name: str) -> None:
        await self._go(f"exchanges/{self.vhost}/{name}", f"Exchange: {name}")

    @property
    def _box(self) -> Locator:
        return self.page.locator(".form-popup-info, .form-popup-warn").first

    def row(self, text: str) -> Locator:
        """Return the rows of the shown table that contain that text."""
        return self.page.locator("table.list tbody tr").filter(has_text=text)

    async def shows(self, part: Locator, text: str) -> None:
        await expect(part).to_contain_text(text, timeout=WAIT_TIMEOUT_MS)

    async def unfold(self, section: str) -> Locator:
        """Open the section with that heading and return its content."""
        part = self.page.locator("div.section, div.section-hidden").filter(
            has=self.page.get_by_role("heading", name=section)
        )
        body = part.locator("div.hider").first
        if not await body.is_visible():
            await part.locator("h2").first.click()
        await expect(body).to_be_visible(timeout=WAIT_TIMEOUT_MS)
        return body

    async def publish(self, routing_key: str, payload: str) -> None:
        """Fill in the form of the shown exchange. The method `send` publishes the message."""
        form = await self.unfold("Publish message")
        await form.locator("input[name=routing_key]").fill(routing_key)
        await form.locator("input[name=props_1_mfkey]").fill("user_id")
        await form.locator("input[name=props_1_mfvalue]").fill(self.user)
        await form.locator("textarea[name=payload]").fill(payload)

    async def send(self) -> None:
        await self.page.click("input[value='Publish message']")

    async def notice(self) -> Locator:
        """Return the notice of the UI about the last action."""
        await expect(self._box).to_be_visible(timeout=WAIT_TIMEOUT_MS)
        return self._box

    async def get_messages(self, number: int) -> Locator:
        """Get messages with the default mode of the form, which requeues them."""
        form = await self.unfold("Get messages")
        assert await form.locator("select[name=ackmode]").input_value() == "ack_requeue_true"
        await form.locator("input[name=count]").fill(str(number))
        shown = form.locator("#msg-wrapper")
        await shown.evaluate("shown => shown.replaceChildren()")
        response = shown.locator("div.box").first.or_(self._box)
        async with asyncio.timeout(WAIT_TIMEOUT_MS / 1000):
            while not await shown.locator("div.box").count():
                await self.close_notice()  # the queue is empty until the broker requeues messages
                await self.page.click("input[value='Get Message(s)']")
                await expect(response).to_be_visible(timeout=WAIT_TIMEOUT_MS)
        await self.page.wait_for_function("!jQuery(':animated').length")
        return shown

    async def close_notice(self) -> None:
        if await self._box.count():
            with suppress(PlaywrightTimeout):  # the UI also closes the notice after a time
                await self._box.get_by_text("Close").click(timeout=CLOSE_TIMEOUT_MS)
            await expect(self._box).to_have_count(0, timeout=WAIT_TIMEOUT_MS)

    async def picture(self, name: str, *, at: Locator | None = None, height: int = HEIGHT) -> None:
        """Store a picture of the page from its top or from the part `at` on."""
        await self.page.set_viewport_size({"width": WIDTH, "height": height})
        if at is None:
            await self.page.evaluate("scrollTo(0, 0)")
        else:
            top = "part.getBoundingClientRect().top + scrollY"
            await at.evaluate(f"part => scrollTo(0, {top} - {HEADER_HEIGHT})")
        image = await self.page.screenshot(animations="disabled")
        assert len(image) < MAX_IMAGE_SIZE, f"{name} is too large for the repository"
        self.pictures.mkdir(parents=True, exist_ok=True)
        (self.pictures / f"{name}.png").write_bytes(image)

    async def _go(self, path: str, heading: str) -> None:
        await self.page.goto(f"{self.url}/#/{path}")
        title = self.page.get_by_role("heading", level=1, name=heading)
        await expect(title).to_be_visible(timeout=WAIT_TIMEOUT_MS)
