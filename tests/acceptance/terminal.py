"""The `harebell` command in a terminal, and a picture of that terminal."""

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
from tests.acceptance.pictures import LARGEST

PATIENCE: Final = 60.0  # seconds, of one command
WIDEST: Final = 230  # characters of a line
PROMPT: Final = "$ "
# From elsewhere: a picture in a document must not load anything.
FONTS: Final = re.compile(r"@font-face \{[^}]*\}\s*")


@dataclass
class Terminal:
    environment: Mapping[str, str]
    shown: list[Text] = field(default_factory=list)

    async def type(self, command: str) -> str:
        """What the command said on both streams, without its colours."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harebell.cli", *shlex.split(command)[1:]),
            env=dict(os.environ) | {"FORCE_COLOR": "1", **self.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate()
        said = Text.from_ansi(out.decode().rstrip("\n"))
        self.shown += [Text(PROMPT + command, style="bold"), said, Text()]
        return said.plain

    def picture(self, name: str, folder: Path) -> Path:
        """Of all that was typed and said since the last one."""
        lines = [line for text in self.shown for line in text.split("\n", allow_blank=True)]
        self.shown.clear()
        width = min(max(len(line.plain.rstrip()) for line in lines), WIDEST)
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
        for line in lines:
            line.rstrip()
            console.print(line, no_wrap=True, overflow="ellipsis")
        image = FONTS.sub("", console.export_svg(title="harebell dlq", unique_id=name))
        assert len(image) < LARGEST, f"{name} is too large for the repository"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.svg"
        path.write_text(image)
        return path
