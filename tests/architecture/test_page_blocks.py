"""Each code block of the tutorial and the guides states what a test does with it."""

from pathlib import Path

import pytest
from tests.acceptance.page_runner import PageBlock, Verb, blocks_of_page, missing_lines
from tests.architecture.source_tree import ROOT, listing

PAGES = sorted(
    path for part in ("tutorial", "guides") for path in (ROOT / "docs" / part).glob("*.md")
)
# A block of these languages is an illustration, which no reader executes.
ILLUSTRATIONS = frozenset({"text", ""})


def faults_in(blocks: list[PageBlock]) -> list[str]:
    """Return the blocks that no test uses, and the named tests that do not exist."""
    faults = [
        f"{block.line}: no comment above a block of {block.language}"
        for block in blocks
        if block.verb is None and block.language not in ILLUSTRATIONS
    ]
    return faults + [
        f"{block.line}: the test {block.argument!r} does not exist"
        for block in blocks
        if block.verb is Verb.TEST and not (ROOT / block.argument).is_file()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_states_the_use_of_each_block(page: Path) -> None:
    faults = faults_in(list(blocks_of_page(page.read_text(encoding="utf-8"))))

    assert not faults, listing(faults)


def test_block_without_a_comment_and_a_missing_test_are_faults() -> None:
    page = "```sh\nls\n```\n\n<!-- test tests/none.py -->\n```yaml\na: 1\n```\n\n```text\nx\n```\n"

    faults = faults_in(list(blocks_of_page(page)))

    assert len(faults) == 2


def test_block_has_the_options_of_its_comment() -> None:
    page = '1. One\n\n   <!-- run until="two words" count=3 -->\n   ```sh\n   a\n     b\n   ```\n'

    (block,) = blocks_of_page(page)

    assert (block.verb, block.text) == (Verb.RUN, "a\n  b\n")
    assert block.options == {"until": "two words", "count": "3"}


def test_comment_with_an_unknown_verb_is_an_error() -> None:
    with pytest.raises(ValueError, match="hope"):
        list(blocks_of_page("<!-- hope -->\n```sh\nls\n```\n"))


@pytest.mark.parametrize(
    ("expected", "missing"),
    [
        ("key   hello\nstate …", []),
        ("…hello", []),
        ("state active\nkey hello", ["key hello"]),
        ("key world", ["key world"]),
        ("key … z", ["key … z"]),
    ],
)
def test_output_contains_the_expected_lines_in_their_order(
    expected: str, missing: list[str]
) -> None:
    assert missing_lines(expected, "id 7\nkey    hello\nstate  active\n") == missing
