"""The prose of Markdown pages and docstrings as values: blocks, lines and sentences."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tests.architecture.source_tree import ROOT

GLOSSARY: Final = ROOT / "docs" / "concepts" / "glossary.md"
# The one section that contains old names.

REFERENCE_PAGES: Final = ("settings.md", "metrics.md", "contract.md", "client-and-cli.md")

CODE: Final = "Code"  # the word that replaces a text in backticks
_BACKTICKS: Final = re.compile(r"(`+)(?:(?!\1).)+?\1")
_CODE_TEXT: Final = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_CODE_WORD: Final = re.compile(r"\w+(?:-\w+)*")
_LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_MARKUP: Final = re.compile(r"<[^>\n]+>|\*\*|(?<!\w)[*_](?=\w)|(?<=[\w.])[*_](?!\w)")
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx)\.", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))\s+(?=[\"'(\[]?[A-Z0-9{])")
_WORD: Final = re.compile(r"\S*[A-Za-z0-9{]\S*")

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s+(?:\d+(?:\.\d+)*\.?\s+)?")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ x]\]\s+)?")
_TABLE: Final = re.compile(r"\s*\|")
_NO_PROSE: Final = re.compile(r"\s*(?:>>> |\.\. |\[[^\]]+\]:\s|<!--|(?:---+|\*\*\*+|===+)\s*$)")


class BlockKind(StrEnum):
    """The kinds of blocks of a page."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"
    TABLE = "table"


@dataclass(frozen=True)
class Block:
    """The lines of one block, without fences, heading marks and list marks."""

    kind: BlockKind
    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines, joined by spaces."""
        return " ".join(self.lines)

    @property
    def sentences(self) -> list[str]:
        """The sentences of a paragraph or an item. A line with a full stop ends a sentence.

        Headings and tables have no sentences.
        """
        if self.kind in {BlockKind.HEADING, BlockKind.TABLE}:
            return []
        whole = re.sub(r"([.!?][\"')\]]*)\n", r"\1\0", "\n".join(self.lines))
        return [each for part in whole.split("\0") for each in sentences(part)]


@dataclass(frozen=True)
class Document:
    """One Markdown page. Its text has empty lines in place of the section with old names."""

    path: Path
    text: str

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the page."""
        return tuple(blocks_of(self.text))


def read_document(path: Path) -> Document:
    """Read a Markdown page."""
    return Document(path, path.read_text(encoding="utf-8"))


def plain(text: str) -> str:
    """Return the text without markup. The word `CODE` replaces each text in backticks."""
    text = _BACKTICKS.sub(CODE, text)
    text = _LINK.sub(r"\1", text)
    return " ".join(_MARKUP.sub("", text).split())


def sentences(text: str) -> list[str]:
    """Return the sentences of the text, without markup."""
    joined = _ABBREVIATION.sub(r"\1", plain(text))
    return [each for each in _SENTENCE_END.split(joined) if _WORD.search(each)]


def word_count(sentence: str) -> int:
    """Return the number of words. A text in backticks counts as one word."""
    return len(_WORD.findall(sentence))


def blocks_of(source: str) -> Iterator[Block]:
    """Yield the blocks of Markdown or of a docstring. Omit code, comments and link targets."""
    kind, start, lines = BlockKind.PARAGRAPH, 0, list[str]()
    is_code = in_list = False
    for number, line in enumerate([*inspect.cleandoc(source).splitlines(), ""], start=1):
        fence = bool(_FENCE.match(line))
        ends = is_code or fence or not line.strip() or bool(_NO_PROSE.match(line))
        is_code ^= fence
        new = None if ends else _kind_of(line, kind if lines else None)
        if lines and (ends or new):
            yield Block(kind, start, tuple(lines))
            lines = []
        if new:
            kind, start = new, number
            in_list = new == BlockKind.ITEM or (in_list and line.startswith(" "))
        # Outside a list, an indented line after an empty line is code.
        if not ends and (lines or in_list or not line.startswith("    ")):
            lines.append(_without_mark(line, new))


def _kind_of(line: str, previous: BlockKind | None) -> BlockKind | None:
    """Return the kind of the block that the line begins, or `None` if it continues a block."""
    if _HEADING.match(line):
        return BlockKind.HEADING
    if _TABLE.match(line):
        return None if previous == BlockKind.TABLE else BlockKind.TABLE
    if _ITEM.match(line):
        return BlockKind.ITEM
    if previous in {BlockKind.PARAGRAPH, BlockKind.ITEM}:
        return None
    return BlockKind.PARAGRAPH


def _without_mark(line: str, begins: BlockKind | None) -> str:
    match begins:
        case BlockKind.HEADING:
            return _HEADING.sub("", line, count=1).strip()
        case BlockKind.ITEM:
            return _ITEM.sub("", line, count=1).strip()
        case _:
            return line.strip().removeprefix("> ")


@cache
def documents() -> tuple[Document, ...]:
    """Return the Markdown pages of the repository."""
    folders = [ROOT / name for name in ("docs", "schemas", "services", "compose", "tests")]
    paths = [*ROOT.glob("*.md"), *(path for each in folders for path in each.rglob("*.md"))]
    return tuple(map(read_document, sorted(paths)))


def page(name: str) -> Path:
    """Return the path of the reference page with this file name."""
    (path,) = (ROOT / "docs").glob(f"*/{name}")
    return path


@cache
def reference_names() -> frozenset[str]:
    """Return the terms of the glossary, and the words in the code of the reference pages."""
    docs = ROOT / "docs"
    pages = [GLOSSARY, *docs.glob("reference/*.md")]
    pages += [path for name in REFERENCE_PAGES for path in docs.glob(f"*/{name}")]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    codes = [code for text in texts for code in _CODE_TEXT.findall(text)]
    terms = [row["term"] for row in table_rows(texts[0]) if "term" in row]
    return frozenset(word for code in codes for word in _CODE_WORD.findall(code)) | set(terms)


def section(source: str, title: str) -> str:
    """Return the text below the heading that contains `title`, up to the next such heading."""
    lines = source.splitlines()
    for start, line in enumerate(lines):
        if _HEADING.match(line) and title.lower() in line.lower():
            level = len(line) - len(line.lstrip("#"))
            end = next(
                (
                    number
                    for number, later in enumerate(lines[start + 1 :], start=start + 1)
                    if re.match(rf"#{{1,{level}}}\s", later)
                ),
                len(lines),
            )
            return "\n".join(lines[start + 1 : end])
    return ""


def table_rows(source: str) -> Iterator[dict[str, str]]:
    """Yield the rows of every table, each as a dictionary with the heads as keys."""
    for block in blocks_of(source):
        if block.kind == BlockKind.TABLE:
            heads, *rows = map(_cells, block.lines)
            yield from (dict(zip(heads, row, strict=False)) for row in rows[1:])


def _cells(line: str) -> list[str]:
    return [each.strip() for each in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
