"""Tables and code for generated pages."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

NOTICE: Final = (
    "<!-- This page is generated: .venv/bin/python -m tests.tools.reference writes it. -->"
)
_MARKUP: Final = re.compile(r"([|\[\]<>*])")


def page(title: str, *parts: str) -> str:
    """Return a page with the notice that a command writes it."""
    return "\n\n".join([f"# {title}", NOTICE, *(part.strip("\n") for part in parts if part)]) + "\n"


def code(text: object) -> str:
    """Return the text in backticks, or an empty text for an empty value."""
    shown = str(text).replace("|", r"\|")
    return f"`{shown}`" if shown else ""


def codes(values: Iterable[object]) -> str:
    """Return the values in backticks, separated by commas."""
    return ", ".join(code(each) for each in values)


def prose(text: str) -> str:
    """Return a text for a cell: one line, without Markdown outside backticks."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [_MARKUP.sub(r"\\\1", part) for part in parts[::2]]
    return "`".join(parts).replace(r"\\|", r"\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def sentences_on_lines(text: str) -> str:
    """Return the paragraphs of a text with each sentence on a new line."""
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    return "\n\n".join(re.sub(r"(?<=[.!?]) (?=[A-Z`])", "\n", each) for each in paragraphs)
