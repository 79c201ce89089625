"""`harebell forecast` on a running stack: in terminals of two widths, as JSON, and as a page."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.text import Text
from tests.acceptance.management_ui import chromium
from tests.acceptance.pictures import MAX_IMAGE_SIZE, picture_folder
from tests.acceptance.stack import Stack, Tenant
from tests.acceptance.terminal import Terminal
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

ECHO = {"task": {"name": "harebell.echo"}}
POOLS = ("default", "reports", "mail", "billing-europe", "imports", "exports", "web", "audits")


@pytest.fixture
async def tenant(running_stack: Stack) -> AsyncIterator[Tenant]:
    async with running_stack.tenant("forecasts") as opened:
        yield opened


@pytest.fixture
def terminal(tenant: Tenant) -> Terminal:
    return Terminal({"HAREBELL_AMQP_URL": tenant.stack.amqp_url, "HAREBELL_TENANT": tenant.name})


async def put_fleet(tenant: Tenant) -> None:
    """Put schedules whose load differs by hour and by pool, with two hours that are quiet.

    Each has at least two times a day, because the forecast omits the past part of this hour.
    """
    rules = (
        {"cron": "0 0-2,5-23 * * *"},
        {"cron": "*/20 6-18 * * *"},
        {"cron": "* 7-9,16 * * *"},
        {"cron": "30 5-22/4 * * *", "jitter": "30m"},
        {"cron": "*/2 0-2 * * *"},
        {"cron": "15 0,12 * * *"},
        {"cron": "*/5 8-20 * * *", "timezone": "Europe/Berlin"},
        {"cron": "H 6-20 * * *"},
    )
    for pool, rule in zip(POOLS, rules, strict=True):
        for number in range(3):
            await tenant.put(f"{pool}-{number}", rule, ECHO, pool=pool)


def run_in_terminal(command: list[str], environment: dict[str, str], width: int) -> str:
    """Return the output of a command in a pseudo-terminal of that width."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = subprocess.Popen(  # noqa: S603  # the command of this test
        [sys.executable, "-m", "harebell.cli", *command],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    output = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the end of the command closes the terminal
            part = b""
        if not part:
            break
        output += part
    os.close(master)
    assert process.wait() == 0, output.decode()
    return output.decode().replace("\r\n", "\n")


@pytest.mark.requirement("S114")
async def test_forecast_fits_the_terminal_and_equals_its_json(
    tenant: Tenant, terminal: Terminal
) -> None:
    await put_fleet(tenant)

    async def is_planned() -> bool:
        forecast = await tenant.harebell.forecast(own=True)
        return len(forecast.groups) >= len(POOLS)

    await until(is_planned, what="the planning of every schedule")
    found = json.loads(await terminal.run("harebell forecast --own -o json"))
    base = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    for width in (80, 100):
        for colour in ({}, {"NO_COLOR": "1"}):
            environment = {**base, "TERM": "xterm-256color", **terminal.environment, **colour}
            output = await asyncio.to_thread(
                run_in_terminal, ["forecast", "--own"], environment, width
            )
            lines = Text.from_ansi(output).plain.splitlines()
            assert max(len(line.rstrip()) for line in lines) <= width
            assert len([line for line in lines if line[7:12].endswith(":00")]) == 24
            assert any("others" in line for line in lines[:1])
            assert ("\x1b[32m" in output) is not bool(colour)
    assert {group["name"] for group in found["groups"]} == set(POOLS)
    assert len(found["hours"]) == len(found["runs"]) == 24
    assert sum(found["runs"]) == sum(group["total"] for group in found["groups"])


async def test_fleet_forecast_by_tenant_contains_this_tenant(
    tenant: Tenant, terminal: Terminal
) -> None:
    await put_fleet(tenant)

    found = json.loads(
        await terminal.run("harebell forecast --from 12h --to 36h --by tenant -o json")
    )

    assert tenant.name in {group["name"] for group in found["groups"]}
    assert len(found["hours"]) in (48, 49)


@pytest.mark.long
async def test_page_of_the_forecast_makes_the_picture_of_the_guide(
    tenant: Tenant, terminal: Terminal, tmp_path: Path
) -> None:
    await put_fleet(tenant)
    page, picture = tmp_path / "forecast.html", picture_folder(tmp_path) / "forecast.png"

    await terminal.run(f"harebell forecast --own --html {page} --svg {tmp_path}/forecast.svg")

    async with chromium() as browser:
        view = await browser.new_page(viewport={"width": 1160, "height": 500})
        requested: list[str] = []
        view.on("request", lambda request: requested.append(request.url))
        await view.goto(page.as_uri())
        size = await view.evaluate("[document.body.scrollWidth, innerWidth]")
        await view.locator("svg").screenshot(path=picture)
        cells = await view.locator("svg rect[rx]").count()
        shown = await view.locator("svg text > title").all_text_contents()
    assert requested == [page.as_uri()]
    assert size[0] <= size[1]
    assert cells >= 24 * (len(POOLS) + 1)
    assert {*POOLS, "all runs"} <= {text.strip() for text in shown}
    assert picture.stat().st_size < MAX_IMAGE_SIZE
