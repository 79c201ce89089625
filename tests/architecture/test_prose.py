"""The prose of code and documents follows the rules of the glossary.

Each rule is a function from a text to the faults in that text.
A test applies each rule to the repository, and another test applies the rule to a bad example.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.architecture.command_line import commands
from tests.architecture.documents import BlockKind, blocks_of, documents, sentences, word_count
from tests.architecture.source_tree import (
    DOCSTRINGS,
    VALUE,
    Text,
    TextKind,
    all_modules,
    listing,
    modules_of_tests,
    source_modules,
)
from tests.architecture.vocabulary import (
    banned_opening_of,
    banned_words_in,
    is_imperative,
    read_banned_openings,
    read_banned_words,
)

MAX_SENTENCE: Final = 30  # words
MIN_TEXT: Final = 4  # words
SENTENCES: Final = frozenset({*DOCSTRINGS, TextKind.ERROR, TextKind.HELP, TextKind.METRIC_HELP})
# A text may also end with another text, which has its own full stop.
FULL_STOP: Final = re.compile(rf"[.:]\s*{re.escape(VALUE)}$|\.[\"'`)\]]*$")

Rule = Callable[[str], list[str]]


def long_sentences(text: str) -> list[str]:
    """Return the sentences with too many words."""
    counted = [
        (word_count(sentence), sentence)
        for block in blocks_of(text)
        for sentence in block.sentences
    ]
    return [f"{count} words: {sentence}" for count, sentence in counted if count > MAX_SENTENCE]


def banned_opening(text: str) -> list[str]:
    """Return the banned opening as a list of one fault or none."""
    return [f"opening {word!r}" for word in [banned_opening_of(text)] if word]


def unfinished(text: str) -> list[str]:
    """Return the paragraphs without a full stop, and the whole text if it is too short.

    A list ends without a full stop, and the paragraph before it ends with a colon.
    """
    blocks = list(blocks_of(text))
    following = [block.kind for block in blocks[1:]] + [None]
    paragraphs = [
        (block.text, after == BlockKind.ITEM)
        for block, after in zip(blocks, following, strict=True)
        if block.kind == BlockKind.PARAGRAPH
    ]
    faults = [
        f"no full stop: {paragraph}"
        for paragraph, introduces in paragraphs
        if not FULL_STOP.search(paragraph) and not (introduces and paragraph.endswith(":"))
    ]
    words = sum(word_count(block.text) for block in blocks)
    return faults + [f"only {words} words: {text}"] * (words < MIN_TEXT)


def not_imperative(docstring: str) -> list[str]:
    """Return the first line if it does not begin with an imperative verb."""
    return [] if is_imperative(docstring) else [docstring.splitlines()[0]]


def crowded_line(line: str) -> list[str]:
    """Return the line if it contains two sentences."""
    return [line] if len(sentences(line)) > 1 else []


def unfixed_log_phrase(phrase: str) -> list[str]:
    """Return the phrase if it interpolates, begins with a capital or ends with a full stop."""
    first = phrase.split(maxsplit=1)[0]
    is_name = sum(letter.isupper() for letter in first) > 1  # such as RabbitMQ or HTTP
    bad = VALUE in phrase or phrase.endswith(".") or (first[0].isupper() and not is_name)
    return [phrase] if bad else []


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield the help of each command and each option as typer shows it."""
    for path, command in commands():
        name = " ".join(("harebell", *path))
        yield name, command.help or ""
        for parameter in command.params:
            if help_text := getattr(parameter, "help", None):
                yield f"{name} {parameter.name}", help_text


def texts(*kinds: TextKind, tests: bool) -> list[Text]:
    """Return the texts of these kinds in `services` and `schemas`, and in `tests` on request."""
    modules = all_modules() if tests else source_modules()
    return [text for module in modules for text in module.texts if text.kind in kinds]


def faults_of(rule: Rule, found: list[Text]) -> list[str]:
    """Return the faults of the texts, each with its place."""
    return [f"{text}: {fault}" for text in found for fault in rule(text.text)]


def test_code_contains_no_banned_word() -> None:
    faults = faults_of(banned_words_in, texts(*TextKind, tests=True))

    assert not faults, listing(faults)


def test_document_contains_no_banned_word() -> None:
    faults = [
        f"{page}:{block.line}: {word}"
        for page in documents()
        for block in page.blocks
        for word in banned_words_in(block.text)
    ]

    assert not faults, listing(faults)


def test_name_of_a_test_contains_no_banned_word() -> None:
    faults = [
        f"{module}:{function.lineno}: {function.name}"
        for module in modules_of_tests()
        for function in module.functions()
        if function.name.startswith("test_") and banned_words_in(function.name.replace("_", " "))
    ]

    assert not faults, listing(faults)


def test_docstring_begins_with_no_banned_opening() -> None:
    faults = faults_of(banned_opening, texts(*DOCSTRINGS, tests=True))

    assert not faults, listing(faults)


def test_error_and_help_begin_with_no_banned_opening() -> None:
    kinds = SENTENCES - DOCSTRINGS
    faults = faults_of(banned_opening, texts(*kinds, tests=False))

    assert not faults, listing(faults)


def test_docstring_error_and_help_are_finished() -> None:
    faults = faults_of(unfinished, texts(*SENTENCES, tests=False))

    assert not faults, listing(faults)


def test_docstring_of_a_function_begins_with_an_imperative_verb() -> None:
    found = texts(TextKind.FUNCTION_DOCSTRING, tests=False)
    faults = faults_of(not_imperative, found)

    assert not faults, listing(faults)


def test_sentence_of_a_docstring_is_short() -> None:
    faults = faults_of(long_sentences, texts(*DOCSTRINGS, tests=True))

    assert not faults, listing(faults)


def test_sentence_of_a_document_is_short() -> None:
    faults = [
        f"{page}:{block.line}: {fault}"
        for page in documents()
        for block in page.blocks
        for sentence in block.sentences
        for fault in long_sentences(sentence)
    ]

    assert not faults, listing(faults)


def test_line_of_a_document_contains_one_sentence() -> None:
    faults = [
        f"{page}:{block.line + number}: {fault}"
        for page in documents()
        for block in page.blocks
        if block.kind in {BlockKind.PARAGRAPH, BlockKind.ITEM}
        for number, line in enumerate(block.lines)
        for fault in crowded_line(line)
    ]

    assert not faults, listing(faults)


def test_log_phrase_is_fixed() -> None:
    faults = faults_of(unfixed_log_phrase, texts(TextKind.LOG, tests=False))

    assert not faults, listing(faults)


@pytest.mark.parametrize("rule", [banned_words_in, banned_opening, unfinished])
def test_help_of_the_command_line_follows_the_rule(rule: Rule) -> None:
    faults = [f"{name}: {fault}" for name, text in help_texts() for fault in rule(text)]

    assert not faults, listing(faults)


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (banned_words_in, "The Sweep\n  returns runs.", "The `sweep` returns runs."),
        (banned_words_in, "The run is put\noff.", "The offer is put on the table."),
        (banned_words_in, "Two bundles arrive.", "Two `bundles` arrive on a [page](bundle.md)."),
        (banned_words_in, "A door opens.", "A matador opens indoor doorways."),
        (banned_opening, "Whether the run is due.", "Return whether the run is due."),
        (banned_opening, "The same row twice.", "The row, twice."),
        (banned_opening, "Its row is locked.", "Items are locked."),
        (unfinished, "Return the runs", "Return the due runs."),
        (unfinished, "The runs.", "The runs of `tenant`."),
        (unfinished, "Read the steps below:", "Read the steps below:\n\n* one"),
        (unfinished, "The lane must not be {}", "The lane must not be {}."),
        (unfinished, "The runs are due.\n\nOne is not", "The runs are due.\n\nOne is (not)."),
        (unfinished, "The page is wrong, {}", "The page is wrong: {}"),
        (not_imperative, "Returns the runs.", "Return the runs."),
        (not_imperative, "The runs of a lane.", "Process the runs of a lane."),
        (not_imperative, "Claiming of runs.", "Bring the runs back."),
        (not_imperative, "`runs` that are due.", "Publish `runs` that are due."),
        (long_sentences, "word " * 31, "word " * 30),
        (long_sentences, "* item\n\n" + "word " * 31, "| " + "word " * 31 + "|\n|---|"),
        (long_sentences, "word\n" * 31, "word " * 20 + "end.\nharebell " + "word " * 20),
        (crowded_line, "One fact. Another fact.", "One fact, e.g. Another."),
        (crowded_line, "Use `one`. `two` is old.", "Use RabbitMQ 4.0 or `a. B`."),
        (unfixed_log_phrase, "Lease renewal failed", "RabbitMQ refused the login"),
        (unfixed_log_phrase, "lease {} expired", "lease expired"),
    ],
)
def test_rule_finds_the_fault_of_the_bad_example_only(rule: Rule, bad: str, good: str) -> None:
    assert rule(bad)
    assert not rule(good)


def test_banned_words_with_a_condition_are_left_to_the_reader() -> None:
    page = "| do not write | write |\n|---|---|\n| `sung`, `so on` | x |\n| `lie` (for `is`) | x |"

    assert read_banned_words(page) == ("sung", "so on")


def test_banned_openings_are_read_in_lower_case() -> None:
    page = "| opening | kind |\n|---|---|\n| `Of`, `The same` | x |"

    assert read_banned_openings(page) == ("of", "the same")


def test_fenced_and_indented_code_is_no_prose() -> None:
    page = "One.\n\n```\na door\n```\n\n    a door\n\n* two\n  three\n\n## 4. Four"

    assert [block.text for block in blocks_of(page)] == ["One.", "two three", "Four"]
