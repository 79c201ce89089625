"""The commands of a page of the documents, which tests run as a reader would.

A block of `sh` is one command of a shell with its lines, and `console` shows lines after `$ `.
"""

import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FENCED: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
HEADING: Final = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
PROMPT: Final = "$ "
DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
SHELL_LANGUAGES: Final = ("sh", "console")
COMMAND_TIMEOUT: Final = 120.0  # seconds
STOP_TIMEOUT: Final = 30.0  # seconds
POLL: Final = 0.1  # seconds
NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, with the heading above it. `text` has neither prompt nor indentation."""

    section: str
    language: str
    text: str

    def replaced(self, examples: Mapping[str, str]) -> str:
        """Return the text with values of the test in place of the examples of the page.

        Raises AssertionError if the page no longer contains an example.
        """
        text = self.text
        for example, value in examples.items():
            assert example in text, f"{self.section}: the page does not contain {example}"
            text = text.replace(example, value)
        return text


def blocks_of(page: Path, *languages: str) -> Iterator[Block]:
    """Yield the blocks of the page in one of the languages, by default the commands of a shell."""
    source = page.read_text(encoding="utf-8")
    headings = [(each.start(), each[1]) for each in HEADING.finditer(_without_blocks(source))]
    for match in FENCED.finditer(source):
        if match["language"] in (languages or SHELL_LANGUAGES):
            above = [title for start, title in headings if start < match.start()]
            text = textwrap.dedent(match["text"])
            text = _entered(text) if match["language"] == "console" else text
            yield Block(above[-1] if above else "", match["language"], text.rstrip("\n"))


def _without_blocks(source: str) -> str:
    """Blank each block, so that a comment of a shell is no heading."""
    return FENCED.sub(lambda match: " " * len(match[0]), source)


def _entered(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(PROMPT)]
    return "".join(f"{line.removeprefix(PROMPT)}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShell:
    """A shell in `folder` with `variables` and the programs of the folders in `programs`."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[Path] = ()

    def run(self, script: str, *, variables: Mapping[str, str] = NONE) -> str:
        """Run a script, which must succeed, and return what it prints to both streams."""
        done = subprocess.run(  # noqa: S603  # the commands of our pages
            self._command(script),
            cwd=self.folder,
            env=self._environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def run_until(self, script: str, condition: Callable[[], bool]) -> str:
        """Run a script without an end until the condition holds. Return what it has printed."""
        log = self.folder / "run-until.log"
        with log.open("w") as output:
            process = subprocess.Popen(  # noqa: S603  # as above
                self._command(script),
                cwd=self.folder,
                env=self._environment(NONE),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + COMMAND_TIMEOUT
                while not condition():
                    assert process.poll() is None, f"{script}\n{log.read_text()}"
                    assert time.monotonic() < deadline, f"{script}\n{log.read_text()}"
                    time.sleep(POLL)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait(STOP_TIMEOUT)
        return log.read_text()

    def _command(self, script: str) -> list[str]:
        return ["/bin/bash", "-euo", "pipefail", "-c", script]

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        given = {**self.variables, **variables}
        path = ":".join([*map(str, self.programs), given.get("PATH", DEFAULT_PATH)])
        return {"HOME": str(self.folder), **given, "PATH": path}
