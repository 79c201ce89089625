"""The commands of the page about the retention, each run as the page shows it."""

import asyncio
import os
import re
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from tests.unit.cli.test_archive import ID, row, write_part

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "operations" / "retention.md"
DAY: Final = date(2026, 10, 1)
COMMAND_TIMEOUT: Final = 60.0  # seconds
COMMANDS: Final = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in block.splitlines()
]


async def run(command: str, environment: dict[str, str]) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_shell(
        command,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT)
    return process.returncode, output.decode()


@pytest.mark.requirement("S118")
async def test_each_command_of_the_page_succeeds(database_url: str, tmp_path: Path) -> None:
    columns = {"tenant": "acme", "key": "invoices", "error": 'a "quoted" \\ text'}
    runs = [row(DAY, hour, state="dead", **columns) for hour in range(3)]
    write_part(tmp_path, DAY, 1, runs, [])
    environment = os.environ | {
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HAREBELL_ARCHIVE_DIR": str(tmp_path),
        "ANALYSIS_URL": database_url,
    }

    results = {each: await run(each, environment) for each in COMMANDS}

    assert {each: result for each, result in results.items() if result[0] != 0} == {}
    assert len(results) == 10
    outputs = [text for _, text in results.values()]
    assert "invoices" in outputs[3]
    assert str(ID) in outputs[4]
    assert outputs[6].splitlines() == ["invoices"] * 3
    assert "dead" in outputs[9]
    assert "3" in outputs[9]
