"""A terminal that runs the `harebell` command, and a picture of that terminal."""

import asyncio
import io
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text
from tests.acceptance.pictures import MAX_IMAGE_SIZE
from tests.rig.command_line import MAX_TIME, end, until_ended

MAX_WIDTH: Final = 230  # characters of a line
PROMPT: Final = "$ "
# A picture in a document must not load a font from another server.
FONTS: Final = re.compile(r"@font-face \{[^}]*\}\s*")


@dataclass
class Terminal:
    """A terminal. `shown` contains the commands and their output since the last picture."""

    environment: Mapping[str, str]
    shown: list[Text] = field(default_factory=list)

    async def run_until(self, command: str, text: str) -> str:
        """Run an endless command and return its output up to the first line with `text`."""
        process = await self._start(command)
        assert process.stdout is not None
        output = ""
        try:
            async with asyncio.timeout(MAX_TIME):
                async for line in process.stdout:
                    output += Text.from_ansi(line.decode()).plain + "\n"
                    if text in output:
                        return output
        finally:
            await end(process)
        raise AssertionError(f"{command} ended without {text}: {output}")

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        words = shlex.split(command)[1:]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "harebell.cli",
            *words,
            env=dict(os.environ) | {"FORCE_COLOR": "1", **self.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, command: str) -> str:
        """Return the output of the command on both streams, without colours."""
        process = await self._start(command)
        done = await until_ended(process)
        output = Text.from_ansi(done.output.rstrip("\n"))
        self.shown += [Text(PROMPT + command, style="bold"), output, Text()]
        return output.plain

    def picture(self, name: str, folder: Path) -> Path:
        """Store a picture of the commands and their output since the last picture."""
        lines = [line for text in self.shown for line in text.split("\n", allow_blank=True)]
        self.shown.clear()
        width = min(max(len(line.plain.rstrip()) for line in lines), MAX_WIDTH)
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
        for line in lines:
            line.rstrip()
            console.print(line, no_wrap=True, overflow="ellipsis")
        image = FONTS.sub("", console.export_svg(title="harebell dlq", unique_id=name))
        assert len(image) < MAX_IMAGE_SIZE, f"{name} is too large for the repository"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.svg"
        path.write_text(image)
        return path
