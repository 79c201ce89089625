"""The site of the documentation: its navigation, its pages and its Markdown."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from tests.architecture.source_tree import ROOT, listing
from tests.tools.reference.indexes import DOCS, NAVIGATION, pages_of

BUILT_IN: Final = {"search", "offline"}  # plugins of mkdocs-material and of Zensical
PARTS: Final = ("Tutorial", "Guides", "Reference", "Concepts")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d+\.) ")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")


def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(NAVIGATION.read_text())
    return found


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def joined_blocks(text: str) -> list[int]:
    """Return the lines that begin a list or a table directly below a paragraph.

    MkDocs needs an empty line between both, and otherwise shows one paragraph.
    """
    found, previous, is_code = [], "", False
    for number, line in enumerate(text.splitlines(), start=1):
        is_code ^= bool(_FENCE.match(line))
        if not is_code and previous.strip() and not previous.startswith((" ", "#", "```")):
            is_list = bool(_ITEM.match(line)) and not _ITEM.match(previous)
            is_table = line.startswith("|") and not previous.startswith("|")
            found += [number] if is_list or is_table else []
        previous = line
    return found


def test_each_page_is_in_the_navigation_once() -> None:
    named = Counter(pages_of(configuration()["nav"]))
    written = Counter(
        str(path.relative_to(DOCS)) for path in pages() if not path.match("decisions/0*.md")
    )

    assert not written - named, f"Add these pages to {NAVIGATION}: {sorted(written - named)}"
    assert not named - written, f"These pages do not exist: {sorted(named - written)}"


def test_navigation_has_the_four_parts() -> None:
    names = [next(iter(entry)) for entry in configuration()["nav"]]

    assert names == ["Harebell", *PARTS]


def test_page_begins_with_its_only_title() -> None:
    faults = [str(path) for path in pages() if not path.read_text().startswith("# ")]

    assert not faults, listing(faults)


def test_list_and_table_follow_an_empty_line() -> None:
    faults = [f"{path}:{line}" for path in pages() for line in joined_blocks(path.read_text())]

    assert not faults, listing(faults)


def test_configuration_is_for_mkdocs_material_and_for_zensical() -> None:
    found = configuration()

    assert set(found["plugins"]) == BUILT_IN
    assert "hooks" not in found


def test_link_of_a_page_stays_within_the_site() -> None:
    faults = [
        f"{path}: {link}"
        for path in pages()
        for link in _LINK.findall(path.read_text())
        if not urlsplit(link).scheme
        and urlsplit(link).path
        and not (path.parent / urlsplit(link).path).resolve().is_relative_to(DOCS)
    ]

    assert not faults, listing(faults)


def test_another_page_links_to_each_page() -> None:
    linked = {
        (path.parent / urlsplit(link).path).resolve()
        for path in [*pages(), ROOT / "README.md"]
        for link in _LINK.findall(path.read_text())
        if urlsplit(link).path and (path.parent / urlsplit(link).path).resolve() != path
    }

    assert [str(path) for path in pages() if path not in linked] == []
    assert [str(path) for path in linked if path.is_dir()] == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("One.\n- two", [2]),
        ("One.\n| a |", [2]),
        ("One.\n\n- two\n- three\n  four\n- five", []),
        ("```\nOne\n- two\n```", []),
    ],
)
def test_list_directly_below_a_paragraph_is_found(text: str, faults: list[int]) -> None:
    assert joined_blocks(text) == faults
