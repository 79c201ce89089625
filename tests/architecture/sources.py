"""The project's own source as a value, for tests to judge: modules, their text, their functions."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = ROOT / "services"
SCHEMAS: Final = ROOT / "schemas"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """As it is imported: `harebell.ticker.core`."""
        path = self.path.relative_to(SCHEMAS if self.path.is_relative_to(SCHEMAS) else SERVICES)
        parts = path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def imports(self) -> set[str]:
        """Names of the modules that it imports from, as they are written."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
        return found

    def calls(self) -> set[str]:
        """Dotted names of what is called or passed on: `datetime.now`, `os.environ`."""
        return {
            ast.unparse(node)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute)
        }

    def strings(self) -> Iterator[str]:
        """String literals, f-strings' parts too; docstrings are no code."""
        docs = {id(each.value) for each in ast.walk(self.tree) if isinstance(each, ast.Expr)}
        for node in ast.walk(self.tree):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and id(node) not in docs:
                yield value


def modules(*roots: Path) -> list[Module]:
    return [Module(path) for root in roots for path in sorted(root.rglob("*.py"))]


OURS: Final = modules(SERVICES / "harebell", SCHEMAS / "harebell")
ALL: Final = [*OURS, *modules(ROOT / "tests")]
