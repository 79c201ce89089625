"""The lists of pages: the decision records, and `llms.txt` for coding agents."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from tests.tools.reference import markdown
from tests.tools.reference.markdown import table

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs"
NAVIGATION: Final = ROOT / ".mkdocs.yml"
_RECORD: Final = re.compile(r"(\d{4})-.*\.md")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_SENTENCE: Final = re.compile(r"^(?![#<|`!\-\d]).+", re.MULTILINE)


def title_of(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def decisions() -> str:
    """Return the index of the decision records, the newest first."""
    intro = (
        "Each record states one decision, its reasons, its price and when to decide again.\n"
        "A number without a record was reserved and not used."
    )
    records = [
        (found[1], f"[{title_of(path)}]({path.name})")
        for path in sorted((DOCS / "decisions").glob("*.md"), reverse=True)
        if (found := _RECORD.fullmatch(path.name))
    ]
    return markdown.page("Decisions", intro, table(("number", "decision"), records))


def pages_of(nav: object) -> Iterator[str]:
    """Yield the path of each page in a navigation of MkDocs, or in a part of one."""
    match nav:
        case str():
            yield nav
        case dict():
            for inner in nav.values():
                yield from pages_of(inner)
        case list():
            for inner in nav:
                yield from pages_of(inner)
        case _:
            raise ValueError(f"The navigation must contain texts, lists and objects, not {nav!r}.")


def llms() -> str:
    """Return the pages of the navigation with their first sentences, as llmstxt.org proposes."""
    configuration: dict[str, Any] = yaml.safe_load(NAVIGATION.read_text(encoding="utf-8"))
    first, *parts = configuration["nav"]
    agents = "guides/coding-agents.md"
    lines = [
        f"# {configuration['site_name']}",
        "",
        f"> {_summary(DOCS / next(pages_of(first)))}",
        "",
        f"If you write code that uses Harebell, begin with [{title_of(DOCS / agents)}]({agents}).",
    ]
    for part in parts:
        (name, pages) = next(iter(part.items()))
        lines += ["", f"## {name}", ""]
        lines += [
            f"- [{title_of(DOCS / page)}]({page}): {_summary(DOCS / page)}"
            for page in pages_of(pages)
        ]
    return "\n".join(lines) + "\n"


def _summary(page: Path) -> str:
    """Return the first line of prose, without its links."""
    found = _SENTENCE.search(page.read_text(encoding="utf-8"))
    return _LINK.sub(r"\1", found[0]) if found else ""
