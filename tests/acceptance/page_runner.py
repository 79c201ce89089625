"""The code blocks of a documentation page, and their execution in one folder.

A comment above a block, which no reader of the page sees, states what a test does with the block:

* `<!-- run -->`                   executes the shell commands
* `<!-- run exit=0,3 -->`          expects one of these exit codes of the last command
* `<!-- run until="text" -->`      repeats the commands until their output contains the text
* `<!-- run until="text" count=3 -->` repeats them until the text occurs three times
* `<!-- run needs=go,/PATH -->`    executes the commands if these programs and files exist
* `<!-- run ready="text" -->`      starts the command, and waits until its output contains the text
* `<!-- output -->`                compares the block with the last output; `…` is any text
* `<!-- file NAME -->`             writes the block into this file
* `<!-- put -->`                   puts the schedule or the schedules of the block
* `<!-- test PATH -->`             names the test that executes the block or validates it
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

COMMAND_TIMEOUT: Final = 240.0  # seconds for one block, as the start of a stack needs
UNTIL_TIMEOUT: Final = 90.0  # seconds until the output of a repeated block contains a text
PAUSE: Final = 0.3  # seconds between two executions of a repeated block
ANY_TEXT: Final = "…"
SAVED: Final = ".page-environment"  # the exported variables between two blocks
_COMMENT: Final = re.compile(r"\s*<!--\s*(.*?)\s*-->\s*")
_FENCE: Final = re.compile(r"\s*```(\w*)\s*$")


class Verb(StrEnum):
    """The uses of a block in a test."""

    RUN = "run"
    OUTPUT = "output"
    FILE = "file"
    PUT = "put"
    TEST = "test"


@dataclass(frozen=True, kw_only=True)
class PageBlock:
    """One fenced block of a page with its comment."""

    line: int
    language: str
    text: str
    verb: Verb | None
    argument: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def blocks_of_page(text: str) -> Iterator[PageBlock]:
    """Yield the fenced blocks. Raise `ValueError` for an unknown comment above a block."""
    comment, start, language, lines = "", 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if start and fence:
            yield _block(comment, start, language, lines)
            comment, start, lines = "", 0, []
        elif start:
            lines.append(line)
        elif fence:
            start, language = number, fence[1]
        elif found := _COMMENT.fullmatch(line):
            comment = found[1]
        elif line.strip():
            comment = ""


def _block(comment: str, line: int, language: str, lines: list[str]) -> PageBlock:
    indent = min((len(each) - len(each.lstrip()) for each in lines if each.strip()), default=0)
    text = "\n".join(each[indent:] for each in lines) + "\n"
    words = shlex.split(comment)
    if not words:
        return PageBlock(line=line, language=language, text=text, verb=None)
    options = dict(word.partition("=")[::2] for word in words[1:] if "=" in word)
    plain = [word for word in words[1:] if "=" not in word]
    return PageBlock(
        line=line,
        language=language,
        text=text,
        verb=Verb(words[0]),
        argument=plain[0] if plain else "",
        options=options,
    )


def missing_lines(expected: str, output: str) -> list[str]:
    """Return the lines of `expected` that the output does not contain in their order."""
    lines, missing, position = output.splitlines(), list[str](), 0
    for each in filter(str.strip, expected.splitlines()):
        found = next((n for n, line in enumerate(lines[position:]) if _matches(each, line)), None)
        if found is None:
            missing.append(each)
        else:
            position += found + 1
    return missing


def _matches(expected: str, line: str) -> bool:
    """Return whether the line contains the parts between `…` in their order.

    A regular expression with ten such parts can need minutes for one line.
    """
    text, position = " ".join(line.split()), 0
    for part in expected.split(ANY_TEXT):
        wanted = " ".join(part.split())
        found = text.find(wanted, position)
        if found < 0:
            return False
        position = found + len(wanted)
    return True


@dataclass(kw_only=True)
class PageRunner:
    """The execution of the blocks of one page, in their order and in one folder."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    put: Callable[[str], None]
    output: str = ""
    omitted: list[str] = field(default_factory=list)  # missing programs and files
    _background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, block: PageBlock) -> None:
        """Do with the block what its comment states. Omit it without a program that it needs."""
        needed = block.options.get("needs", "").split(",")
        if missing := [each for each in filter(None, needed) if not self._has(each)]:
            self.omitted += missing
            return
        place = f"{self.name}:{block.line}"
        match block.verb:
            case Verb.RUN if "ready" in block.options:
                self._start(block.text, block.options["ready"], place)
            case Verb.RUN if "until" in block.options:
                self._repeat(block, place)
            case Verb.RUN:
                code = self._shell(block.text)
                expected = block.options.get("exit", "0").split(",")
                assert str(code) in expected, f"{place}: exit code {code}\n{self.output}"
            case Verb.OUTPUT:
                missing = missing_lines(block.text, self.output)
                assert not missing, f"{place}: {missing} not in\n{self.output}"
            case Verb.FILE:
                path = self.folder / block.argument
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            case Verb.PUT:
                self.put(block.text)
            case Verb.TEST | None:
                pass

    def _has(self, needed: str) -> bool:
        """Return whether a program is in the path, or whether a file exists."""
        if needed.startswith("/"):
            return Path(needed).exists()
        return shutil.which(needed, path=self.environment["PATH"]) is not None

    def close(self) -> None:
        """End the programs that the page has started."""
        for process in self._background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._background:
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _script(self, text: str) -> list[str]:
        saved = f"[ ! -f {SAVED} ] || . ./{SAVED}\n"
        return ["/bin/bash", "-uo", "pipefail", "-c", f"{saved}{text}"]

    def _shell(self, text: str) -> int:
        keep = f"\ncode=$?\nexport -p > {SAVED}\nexit $code"
        completed = subprocess.run(  # noqa: S603  # the commands of our pages
            self._script("set -e\ntrap 'exit $?' ERR\n" + text + keep),
            cwd=self.folder,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        self.output = completed.stdout
        return completed.returncode

    def _repeat(self, block: PageBlock, place: str) -> None:
        wanted, count = block.options["until"], int(block.options.get("count", "1"))
        deadline = time.monotonic() + UNTIL_TIMEOUT
        while self._shell(block.text) != 0 or self.output.count(wanted) < count:
            assert time.monotonic() < deadline, f"{place}: no {wanted!r} in\n{self.output}"
            time.sleep(PAUSE)

    def _start(self, text: str, wanted: str, place: str) -> None:
        log = self.folder / f"background-{len(self._background)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  # the commands of our pages
                self._script(text),
                cwd=self.folder,
                env=dict(self.environment),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._background.append(process)
        deadline = time.monotonic() + UNTIL_TIMEOUT
        while wanted not in log.read_text(errors="replace"):
            has_ended = process.poll() is not None or time.monotonic() > deadline
            assert not has_ended, f"{place}: no {wanted!r} in\n{log.read_text()}"
            time.sleep(PAUSE)
