"""The hooks of MkDocs for the site: the decision records, and links to files outside the site.

MkDocs imports this module with `make docs`. The module imports nothing of MkDocs, so that an
architecture test can use its functions in an environment without MkDocs.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DECISIONS: Final = "Decisions"
SEARCH_WORKER: Final = "site/search-worker.js"
DECISION_TABLE: Final = "<!-- decisions -->"  # the index page has this line
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_IMAGE: Final = re.compile(r"^!\[[^\]]*\]\(([^)\s]+)\)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d{4}")


def decisions() -> list[tuple[str, str, str]]:
    """Return the number, the title and the file name of each decision record."""
    return [
        (found[0], path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# "), path.name)
        for path in sorted((DOCS / "decisions").glob("*.md"))
        if (found := _NUMBER.match(path.name))
    ]


def decision_table() -> str:
    """Return the index of the decision records as a table, newest first."""
    rows = [f"| {number} | [{title}]({name}) |" for number, title, name in reversed(decisions())]
    return "\n".join(["| number | decision |", "|---|---|", *rows])


def pages_of(nav: object) -> Iterator[str]:
    """Yield the path of each page in a navigation of MkDocs."""
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


def with_decisions(nav: list[Any]) -> list[Any]:
    """Return the navigation with all decision records in its part `Decisions`."""
    records = [{f"{number} {title}": f"decisions/{name}"} for number, title, name in decisions()]
    return [_filled(each, records) for each in nav]


def _filled(entry: Any, records: list[dict[str, str]]) -> Any:
    match entry:
        case {"Decisions": list() as pages}:
            return {DECISIONS: [*pages, *records]}
        case dict():
            return {name: _filled(inner, records) for name, inner in entry.items()}
        case list():
            return [_filled(each, records) for each in entry]
        case _:
            return entry


def without_outer_links(markdown: str, page: Path) -> str:
    """Return the page with the path of each linked file that is outside the site.

    Raises `ValueError` if such a file does not exist.
    """

    def replace(found: re.Match[str]) -> str:
        text, link = found[1], urlsplit(found[2])
        target = (page.parent / link.path).resolve()
        if link.scheme or not link.path or target.is_relative_to(DOCS):
            return found[0]
        if not target.exists():
            raise ValueError(f"The page {page} has a link to {found[2]}, which does not exist.")
        name = str(target.relative_to(ROOT))
        return text if text.strip("`") == name else f"{text} (`{name}` in the repository)"

    return _LINK.sub(replace, markdown)


def with_linked_images(markdown: str) -> str:
    """Return the page with a link from each picture to its file, which shows its full size."""
    return _IMAGE.sub(r"[\g<0>](\g<1>)", markdown)


def on_config(config: Any) -> Any:
    """Add the decision records to the navigation."""
    config["nav"] = with_decisions(config["nav"])
    return config


def on_pre_build(config: Any) -> None:
    """Replace the script that the plugin `offline` loads from another server."""
    config["extra"]["polyfills"] = [SEARCH_WORKER]


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Replace the links that leave the site, and write the index of the decision records."""
    text = without_outer_links(markdown, DOCS / page.file.src_uri)
    return with_linked_images(text).replace(DECISION_TABLE, decision_table())
