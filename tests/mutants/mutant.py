"""Mutants: changes of one line that break a rule, each with the tests that must notice it."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

LIST: Final = Path(__file__).parent / "list"
IMPORT_ROOTS: Final = ("services", "schemas")


class OutdatedMutant(Exception):
    """A mutant whose line does not occur exactly once, or whose tests do not exist."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change of one line of a file.

    Exactly one line of the file contains `find`.
    With `after`, the line is the first one with `find` below the only line that contains `after`.
    `replace` is the text in the place of `find`.
    `tests` are paths below the folder `tests`, with `::` before the name of a single test.
    """

    name: str
    topic: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    after: str | None = None

    @property
    def module(self) -> str | None:
        """The name of the changed module, or None for a file that is not Python."""
        path = Path(self.file)
        if path.suffix != ".py":
            return None
        parts = path.with_suffix("").parts
        return ".".join(parts[1:] if parts[0] in IMPORT_ROOTS else parts)

    def apply_to(self, text: str) -> str:
        """Return the changed text. Raise `OutdatedMutant`."""
        lines = text.splitlines(keepends=True)
        index = self._line_in(lines)
        if lines[index].count(self.find) != 1:
            raise OutdatedMutant(f"The line must contain {self.find!r} once.")
        lines[index] = lines[index].replace(self.find, self.replace)
        return "".join(lines)

    def check(self, root: Path) -> None:
        """Raise `OutdatedMutant` if the tree at `root` lacks the line or a test."""
        path = root / self.file
        if not path.exists():
            raise OutdatedMutant(f"The file {self.file} does not exist.")
        self.apply_to(path.read_text(encoding="utf-8"))
        for test in self.tests:
            file, _, name = test.partition("::")
            known = _names_of_tests(root / "tests" / file)
            if known is None or (name and name.partition("[")[0] not in known):
                raise OutdatedMutant(f"The test {test} does not exist.")

    def _line_in(self, lines: Sequence[str]) -> int:
        found = _lines_with(lines, self.find)
        if self.after is None:
            if len(found) != 1:
                raise OutdatedMutant(f"{len(found)} lines contain {self.find!r}, not one.")
            return found[0]
        above = _lines_with(lines, self.after)
        if len(above) != 1:
            raise OutdatedMutant(f"{len(above)} lines contain {self.after!r}, not one.")
        below = [index for index in found if index > above[0]]
        if not below:
            raise OutdatedMutant(f"No line below {self.after!r} contains {self.find!r}.")
        return below[0]


@cache
def _names_of_tests(path: Path) -> frozenset[str] | None:
    """Return the names of the functions in a file, or None if it does not exist."""
    if not path.exists():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


def _lines_with(lines: Sequence[str], text: str) -> list[int]:
    return [index for index, line in enumerate(lines) if text in line]


def load_mutants(folder: Path = LIST) -> list[Mutant]:
    """Return the mutants of all files of the list, in the order of the files."""
    return [
        _mutant(entry)
        for path in sorted(folder.glob("*.yml"))
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]


def _mutant(entry: dict[str, Any]) -> Mutant:
    return Mutant(**{**entry, "tests": tuple(entry["tests"])})


def select(mutants: Sequence[Mutant], topics: Sequence[str]) -> list[Mutant]:
    """Return the mutants of these topics, or all mutants without a topic.

    Raise `ValueError` for a topic without a mutant.
    """
    known = {mutant.topic for mutant in mutants}
    if unknown := sorted(set(topics) - known):
        raise ValueError(
            f"The topic must be one of {', '.join(sorted(known))}, not {', '.join(unknown)}."
        )
    return [mutant for mutant in mutants if not topics or mutant.topic in topics]
