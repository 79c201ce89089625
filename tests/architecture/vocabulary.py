"""The vocabulary rules of the glossary, parsed from the page."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from tests.architecture.documents import (
    GLOSSARY,
    plain,
    table_rows,
)

MIN_BANNED_WORDS: Final = 20
MIN_BANNED_OPENINGS: Final = 30

_NAME: Final = re.compile(r"`([^`]+)`")
_CONDITION: Final = re.compile(r"\([^)]*\)")

# Words that no imperative sentence begins with. Ruff rule D401 knows only the forms of verbs.
NOT_IMPERATIVE: Final = frozenset(
    {"a", "an", "the", "each", "every", "any", "no", "one", "two", "both", "either", "neither"}
    | {"some", "another", "other", "true", "false", "number", "code", "only", "also"}
)
# Imperative verbs with the ending of another form.
IMPERATIVE: Final = frozenset(
    {"bring", "ping", "string", "need", "feed", "embed", "seed", "speed", "proceed", "focus"}
)


def alternatives(words: list[str]) -> re.Pattern[str]:
    """Return the pattern of the words, each as a whole word with an optional plural `s`."""
    longest_first = sorted(words, key=len, reverse=True)
    patterns = (r"\s+".join(map(re.escape, word.split())) for word in longest_first)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(patterns)})s?(?![\w-])", re.IGNORECASE)


@cache
def banned_words() -> tuple[str, ...]:
    """Return the banned words without a condition. A reader checks the others."""
    words = read_banned_words(GLOSSARY.read_text(encoding="utf-8"))
    if len(words) < MIN_BANNED_WORDS:
        raise AssertionError(
            f"{GLOSSARY.name} must ban {MIN_BANNED_WORDS} words, not {len(words)}."
        )
    return words


@cache
def banned_openings() -> tuple[str, ...]:
    """Return the banned openings in lower case."""
    openings = read_banned_openings(GLOSSARY.read_text(encoding="utf-8"))
    if len(openings) < MIN_BANNED_OPENINGS:
        raise AssertionError(
            f"{GLOSSARY.name} must ban {MIN_BANNED_OPENINGS} openings, not {len(openings)}."
        )
    return openings


def read_banned_words(page: str) -> tuple[str, ...]:
    """Return the words in the column "do not write" of the rows without a condition."""
    cells = [row["do not write"] for row in table_rows(page) if "do not write" in row]
    return _names_in(cell for cell in cells if not _CONDITION.search(_NAME.sub("", cell)))


def read_banned_openings(page: str) -> tuple[str, ...]:
    """Return the words in the column "opening", in lower case."""
    return _names_in(row["opening"].lower() for row in table_rows(page) if "opening" in row)


def _names_in(cells: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for cell in cells for name in _NAME.findall(cell)))


@cache
def word_pattern() -> re.Pattern[str]:
    """Return the pattern of every banned word."""
    return alternatives([*banned_words()])


@cache
def opening_pattern() -> re.Pattern[str]:
    """Return the pattern of every banned opening."""
    longest_first = sorted(banned_openings(), key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})\b", re.IGNORECASE)


def banned_words_in(text: str) -> list[str]:
    """Return the banned words of the text outside backticks."""
    return word_pattern().findall(plain(text))


def banned_opening_of(text: str) -> str:
    """Return the banned opening of the text, or an empty string."""
    match = opening_pattern().match(plain(text))
    return match[0] if match else ""


def is_imperative(docstring: str) -> bool:
    """Return whether the first word can be an imperative verb."""
    match = re.match(r"[A-Za-z]+", plain(docstring))
    word = match[0].lower() if match else ""
    if word in IMPERATIVE:
        return True
    other_form = word.endswith(("ing", "ed")) or re.search(r"[^s]s$", word)
    return bool(word) and not other_form and word not in NOT_IMPERATIVE
