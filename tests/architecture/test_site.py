"""The site of the documentation: its navigation, its pages and its Markdown."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.architecture.source_tree import listing
from tests.tools.site_hooks import (
    DOCS,
    pages_of,
    with_decisions,
    with_linked_images,
    without_outer_links,
)

CONFIGURATION: Final = "docs/site/mkdocs.yml"
PARTS: Final = ("Tutorial", "Guides", "Reference", "Concepts")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d+\.) ")
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")


def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())
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
    named = Counter(pages_of(with_decisions(configuration()["nav"])))
    written = Counter(str(path.relative_to(DOCS)) for path in pages())

    assert not written - named, f"Add these pages to {CONFIGURATION}: {sorted(written - named)}"
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


def test_link_out_of_the_site_names_an_existing_file() -> None:
    for path in pages():
        without_outer_links(path.read_text(), path)


def test_link_out_of_the_site_becomes_the_path_of_the_file() -> None:
    page = DOCS / "index.md"
    text = "[the contract](../schemas/README.md), [one](index.md), [`LICENSE`](../LICENSE)"

    shown = without_outer_links(text, page)

    assert shown == (
        "the contract (`schemas/README.md` in the repository), [one](index.md), `LICENSE`"
    )


def test_link_to_a_missing_file_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        without_outer_links("[gone](../gone.md)", DOCS / "index.md")


def test_picture_has_a_link_to_its_file() -> None:
    assert with_linked_images("One.\n\n![a](b.png)\n") == "One.\n\n[![a](b.png)](b.png)\n"


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
