"""The built site: its search works from files, and no page needs another server."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.acceptance.management_ui import chromium
from tests.architecture.source_tree import ROOT

pytestmark = pytest.mark.long

BUILD_TIMEOUT: Final = 300.0  # seconds
SEARCH_TIMEOUT_MS: Final = 60_000  # milliseconds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, which `make docs` builds with the same options."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--strict", "--config-file", ".mkdocs.yml", "--site-dir", str(folder)]
    completed = subprocess.run(  # noqa: S603  # a fixed command
        [sys.executable, "-m", "mkdocs", "build", *options],
        cwd=ROOT,
        env=dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return folder


async def test_search_from_files_finds_a_page_without_another_server(site: Path) -> None:
    requested = list[str]()

    async with chromium() as browser:
        page = await browser.new_page()
        page.on("request", lambda request: requested.append(request.url))
        await page.goto((site / "index.html").as_uri())
        # The page searches at each released key, which `fill` does not send.
        await page.locator(".md-search__input").press_sequentially("fencing token")
        result = page.locator(".md-search-result__item", has_text="Leases and fencing").first
        await result.wait_for(timeout=SEARCH_TIMEOUT_MS)

    assert requested
    assert [url for url in requested if not url.startswith("file:")] == []


def test_site_contains_no_file_of_its_configuration(site: Path) -> None:
    assert (site / "site" / "iframe-worker.js").exists()
    assert not list(site.rglob("mkdocs.yml"))
    assert not list(site.rglob("*.jsonl"))
