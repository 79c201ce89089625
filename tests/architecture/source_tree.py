"""The Python source of the repository as values: modules, imports, and the prose in the code.

Each file is read and parsed once in a test session.
"""

import ast
import builtins
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = ROOT / "services"
SCHEMAS: Final = ROOT / "schemas"
TESTS: Final = ROOT / "tests"

# The placeholder of an interpolated value in the text of an f-string.
VALUE: Final = "{}"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)

LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
LOGGERS: Final = frozenset({"log", "_log", "logger", "_logger", "LOG", "_LOG"})
METRIC_TYPES: Final = frozenset({"Counter", "Enum", "Gauge", "Histogram", "Info", "Summary"})
PROPERTIES: Final = frozenset({"property", "cached_property", "setter", "overload"})
DIRECTIVE: Final = re.compile(r"#\s*(?:noqa|type:|fmt:|ruff:|pragma|!)[^#]*", re.IGNORECASE)


class TextKind(StrEnum):
    """The kinds of prose in the code."""

    MODULE_DOCSTRING = "module docstring"
    CLASS_DOCSTRING = "class docstring"
    FUNCTION_DOCSTRING = "function docstring"
    PROPERTY_DOCSTRING = "property docstring"
    COMMENT = "comment"
    ERROR = "error"
    HELP = "help"
    LOG = "log"
    METRIC_HELP = "metric help"


DOCSTRINGS: Final = frozenset(kind for kind in TextKind if kind.endswith("docstring"))


@dataclass(frozen=True, kw_only=True)
class Text:
    """One prose text of a module. `VALUE` stands for each interpolated value."""

    kind: TextKind
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.kind}"


@dataclass(frozen=True)
class Module:
    """A parsed Python file, and the nodes of its tree by their type."""

    path: Path
    source: str

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def name(self) -> str:
        """The name in an import statement, such as `harebell.ticker.stager`."""
        roots = [root for root in (SCHEMAS, SERVICES) if self.path.is_relative_to(root)]
        parts = self.path.relative_to(*roots or [ROOT]).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        """True for the `__init__.py` of a package."""
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return ast.parse(self.source)

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in ast.walk(self.tree):
            nodes[type(node)].append(node)
        return nodes

    def find(self, *types: type[Node]) -> Iterator[Node]:
        """Yield the nodes whose type is one of `types`."""
        for each in types:
            for node in self._nodes.get(each, ()):
                assert isinstance(node, each)
                yield node

    def functions(self) -> Iterator[Function]:
        """Yield every function and every method."""
        yield from self.find(ast.FunctionDef)
        yield from self.find(ast.AsyncFunctionDef)

    def imported_modules(self) -> set[str]:
        """Return the module names in import statements, at the top level and in functions."""
        names = {alias.name for node in self.find(ast.Import) for alias in node.names}
        return names | {node.module for node in self.find(ast.ImportFrom) if node.module}

    @cached_property
    def dotted_names(self) -> frozenset[str]:
        """The attribute chains in the code, such as `datetime.now` and `os.environ`."""
        return frozenset(ast.unparse(node) for node in self.find(ast.Attribute) if is_dotted(node))

    def strings(self) -> Iterator[ast.Constant]:
        """Yield the string literals and the literal parts of f-strings, without docstrings."""
        expressions = {id(node.value) for node in self.find(ast.Expr)}
        for node in self.find(ast.Constant):
            if isinstance(node.value, str) and id(node) not in expressions:
                yield node

    @cached_property
    def comments(self) -> tuple[tokenize.TokenInfo, ...]:
        """The comment tokens of the file, with the directives for linters."""
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return tuple(token for token in tokens if token.type == tokenize.COMMENT)

    @cached_property
    def texts(self) -> tuple[Text, ...]:
        """Every prose text of the file."""
        return (
            *self._docstrings(),
            *self._comment_texts(),
            *self._errors(),
            *self._help_texts(),
            *self._log_phrases(),
            *self._metric_help_texts(),
        )

    def _text(self, kind: TextKind, node: ast.AST, text: str) -> Text:
        return Text(kind=kind, path=self.path, line=getattr(node, "lineno", 1), text=text)

    def _docstrings(self) -> Iterator[Text]:
        for node in self.find(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, Documented)
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield self._text(docstring_kind(node), node.body[0], docstring)

    def _comment_texts(self) -> Iterator[Text]:
        """Yield the comments, with the lines of a block joined and the directives removed."""
        block: list[tokenize.TokenInfo] = []
        for token in self.comments:
            continues = bool(block) and _is_next_line(block[-1], token)
            if block and not continues:
                yield from self._comment_text(block)
            block = [*(block if continues else []), token]
        if block:
            yield from self._comment_text(block)

    def _comment_text(self, block: list[tokenize.TokenInfo]) -> Iterator[Text]:
        lines = [DIRECTIVE.sub("", token.string).strip().lstrip("#:").strip() for token in block]
        if text := " ".join(filter(None, lines)):
            line = block[0].start[0]
            yield Text(kind=TextKind.COMMENT, path=self.path, line=line, text=text)

    def _errors(self) -> Iterator[Text]:
        calls = {id(node): node for node in self.find(ast.Call) if _makes_an_error(node)}
        for raised in self.find(ast.Raise):
            if isinstance(raised.exc, ast.Call):
                calls[id(raised.exc)] = raised.exc
        assigned = self._assigned_texts()
        for call in calls.values():
            for node in _message_arguments(call):
                nodes = assigned.get(node.id, []) if isinstance(node, ast.Name) else [node]
                for text in (text for each in nodes for text in texts_of(each)):
                    # A single word is a code or the name of a field.
                    if " " in text and re.search("[a-z]", text):
                        yield self._text(TextKind.ERROR, node, text)

    def _assigned_texts(self) -> dict[str, list[ast.expr]]:
        """Return the texts in local variables, because many errors get their text from one."""
        found: dict[str, list[ast.expr]] = defaultdict(list)
        for node in self.find(ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value, _TEXT_NODES):
                    found[target.id].append(node.value)
        return found

    def _help_texts(self) -> Iterator[Text]:
        for call in self.find(ast.Call):
            for keyword in call.keywords:
                if keyword.arg == "help":
                    for text in texts_of(keyword.value):
                        yield self._text(TextKind.HELP, keyword.value, text)

    def _log_phrases(self) -> Iterator[Text]:
        for call in self.find(ast.Call):
            if call.args and isinstance(call.func, ast.Attribute) and call.func.attr in LOG_LEVELS:
                owner = call.func.value
                logger = owner.attr if isinstance(owner, ast.Attribute) else ast.unparse(owner)
                if logger in LOGGERS:
                    for text in texts_of(call.args[0]):
                        yield self._text(TextKind.LOG, call, text)

    def _metric_help_texts(self) -> Iterator[Text]:
        for call in self.metric_calls():
            for text in texts_of(call.args[1]):
                yield self._text(TextKind.METRIC_HELP, call, text)

    def metric_calls(self) -> Iterator[ast.Call]:
        """Yield the calls that declare a metric, which pass the name and the help by position."""
        for call in self.find(ast.Call):
            if called_name(call) in METRIC_TYPES and len(call.args) > 1:
                first = call.args[0]
                if isinstance(first, ast.Constant) and str(first.value).startswith("harebell_"):
                    yield call


_TEXT_NODES: Final = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)
_ERROR_SUFFIXES: Final = ("Error", "Exception", "Exit")


def is_dotted(node: ast.expr) -> bool:
    """Return whether the expression is a name or a chain of attributes of a name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of the called function, or an empty string."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def decorator_names(node: Function | ast.ClassDef) -> set[str]:
    """Return the last part of the name of each decorator."""
    calls = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return {each.attr if isinstance(each, ast.Attribute) else ast.unparse(each) for each in calls}


def docstring_kind(node: Documented) -> TextKind:
    """Return the kind of the docstring of `node`."""
    if isinstance(node, ast.Module):
        return TextKind.MODULE_DOCSTRING
    if isinstance(node, ast.ClassDef):
        return TextKind.CLASS_DOCSTRING
    if decorator_names(node) & PROPERTIES:
        return TextKind.PROPERTY_DOCSTRING
    return TextKind.FUNCTION_DOCSTRING


def texts_of(node: ast.expr) -> Iterator[str]:
    """Yield the text of a string expression, and both texts of a conditional expression."""
    match node:
        case ast.IfExp():
            yield from texts_of(node.body)
            yield from texts_of(node.orelse)
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
            yield _joined(node)
        case _:
            pass


def _joined(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(map(_joined, node.values))
        case ast.BinOp(op=ast.Add()):
            return _joined(node.left) + _joined(node.right)
        case _:
            return VALUE


def _is_next_line(first: tokenize.TokenInfo, second: tokenize.TokenInfo) -> bool:
    own_lines = all(not each.line[: each.start[1]].strip() for each in (first, second))
    return own_lines and second.start == (first.start[0] + 1, first.start[1])


def _makes_an_error(call: ast.Call) -> bool:
    name = called_name(call)
    initializer = name == "__init__" and ast.unparse(call.func) == "super().__init__"
    return initializer or name in error_names() or name.endswith(_ERROR_SUFFIXES)


def _message_arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (each.value for each in call.keywords if each.arg in {"reason", "message", "error"})


@cache
def error_names() -> frozenset[str]:
    """Return the error classes of the repository, and the functions that return an error."""
    bases: dict[str, set[str]] = defaultdict(set)
    for module in source_modules():
        for node in module.find(ast.ClassDef):
            bases[node.name] |= {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {name for name, value in vars(builtins).items() if _is_exception(value)}
    while new := {name for name, of in bases.items() if of & found and name not in found}:
        found |= new
    makers = {
        function.name
        for module in source_modules()
        for function in module.functions()
        if function.returns is not None
        and (ast.unparse(function.returns) in found | {"PydanticCustomError"})
    }
    return frozenset(found | makers)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _modules_in(*folders: Path) -> tuple[Module, ...]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return tuple(Module(path, path.read_text(encoding="utf-8")) for path in paths)


@cache
def source_modules() -> tuple[Module, ...]:
    """Return the modules of `services` and `schemas`."""
    return _modules_in(SERVICES / "harebell", SCHEMAS / "harebell")


@cache
def modules_of_tests() -> tuple[Module, ...]:
    """Return the modules of `tests`."""
    return _modules_in(TESTS)


def all_modules() -> tuple[Module, ...]:
    """Return every module of the repository."""
    return (*source_modules(), *modules_of_tests())


@cache
def setting_variables() -> frozenset[str]:
    """Return the environment variables of the settings classes, without the suffix `_FILE`."""
    return frozenset(
        f"HAREBELL_{each.target.id.upper()}"
        for module in source_modules()
        if "Settings(" in module.source  # the search for text saves the parsing of most modules
        for node in module.find(ast.ClassDef)
        if node.name.endswith("Settings")
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        if not each.target.id.startswith(("_", "model_"))
    )


def listing(faults: list[str]) -> str:
    """Return the message of a failed check: the number of faults and one fault on each line."""
    return "\n".join([f"The check found {len(faults)} faults.", *sorted(faults)])
