"""The page of the error codes, from the classes and the calls that make errors.

The page shows an error code with each sentence of the code, and `…` replaces a value.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.architecture.source_tree import (
    VALUE,
    Module,
    called_name,
    error_names,
    source_modules,
    texts_of,
)
from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, prose, table

from harebell.contract import errors as error_tree

MAX_SENTENCES: Final = 3  # of one code
# The meaning of codes whose sentence another program or a function makes.
MEANINGS: Final = {
    "attempts_exhausted": "The last attempt of the retry policy failed.",
    "bad_certificate": "PostgreSQL has a certificate that the service does not accept.",
    "connection_lost": "The connection to the target ended before the response.",
    "http_<status>": "The target answered with a status outside 200 to 299.",
    "invalid_cron": "The cron expression is invalid. The error contains the position.",
    "invalid_request": "The request of the target cannot be written as HTTP.",
    "lease_expired": "The executor of the attempt stopped, and its lease expired.",
    "redirect_loses_body": "The body of the request would not arrive after the redirect.",
    "retry_later": "The task requested a later attempt.",
    "target_error": "The executor failed while it called the target.",
    "task_failed": "The task raised an error.",
    "unknown_task": "No executor of the pool has the task.",
}
OF_ATTEMPTS: Final = ("attempts_exhausted", "http_<status>", "lease_expired")
_WITHOUT_ANSWER: Final = ("harebell.dev", "harebell.cli")


@dataclass(frozen=True, order=True)
class Found:
    """One place that makes an error with a code."""

    branch: str
    code: str
    sentence: str


def page() -> str:
    """Return the page."""
    found = sorted({each for module in source_modules() for each in _errors_in(module)})
    made = {each.code for each in found if each.sentence}
    found += [each for each in _classes() if each.code not in made | set(MEANINGS)]
    intro = (
        "You meet these codes in responses, dead letters, events and the output of commands.\n"
        "Rely on the code: the sentence beside it may change, and there may be further codes.\n"
        "`…` stands for a value."
    )
    parts = [intro]
    for branch, title, words in (
        ("rejected", "Rejected", "The same message can never succeed, so correct it."),
        ("transient", "Transient", "The same message may succeed later, so repeat it."),
        ("attempt", "Failed attempts", "An attempt of a run failed with this code."),
    ):
        sentences = _sentences_of([each for each in found if each.branch == branch])
        extra = OF_ATTEMPTS if branch == "attempt" else ()
        rows = [
            (code(name), prose(" ".join(sentences.get(name, []))) or MEANINGS[name])
            for name in sorted({*sentences, *extra})
        ]
        parts += [f"## {title}", words, table(("code", "meaning"), rows)]
    return markdown.page("Error codes", *parts)


def _sentences_of(found: list[Found]) -> dict[str, list[str]]:
    """Return the sentences of each code, at most `MAX_SENTENCES`."""
    sentences: dict[str, list[str]] = {}
    for each in found:
        known = sentences.setdefault(each.code, [])
        if each.sentence and len(known) < MAX_SENTENCES:
            known.append(each.sentence)
    return sentences


def _classes() -> Iterator[Found]:
    """Yield the code of each class of the error tree with the first sentence of its docstring."""
    roots = {error_tree.Rejected, error_tree.Transient, error_tree.InvalidInput}
    for name, value in vars(error_tree).items():
        if isinstance(value, type) and "code" in vars(value) and value not in roots:
            sentence = inspect.cleandoc(value.__doc__ or "").split(". ")[0].split("\n")[0]
            yield Found(_branch(name), vars(value)["code"], sentence.rstrip(".") + ".")


def _errors_in(module: Module) -> Iterator[Found]:
    if module.name.startswith(_WITHOUT_ANSWER):
        return
    constants = _constants(module)
    for call in module.find(ast.Call):
        name = called_name(call)
        if name in {"invalid", "Failure"} and len(call.args) > 1:
            codes, texts = list(_values(call.args[0], constants)), call.args[1:2]
        elif name in error_names():
            given = [each.value for each in call.keywords if each.arg == "code"]
            codes = [value for each in given for value in _values(each, constants)]
            codes = codes or ([] if given else _own_code(name))
            texts = call.args[:1]
        else:
            continue
        sentence = next((text for each in texts for text in _sentences(each, module, call)), "")
        for each in codes:
            yield Found(_branch(name), each, sentence.replace(VALUE, "…"))


def _branch(name: str) -> str:
    if name == "Failure":
        return "attempt"
    kind = getattr(error_tree, name, error_tree.Rejected)
    is_transient = isinstance(kind, type) and issubclass(kind, error_tree.Transient)
    return "transient" if is_transient else "rejected"


def _own_code(name: str) -> list[str]:
    found = getattr(getattr(error_tree, name, None), "code", None)
    return [found] if isinstance(found, str) else []


def _constants(module: Module) -> dict[str, str]:
    """Return the texts that names of the module have, also imported names."""
    return {
        target.id: node.value.value
        for each in source_modules()
        if each is module or f"from {each.name} import" in module.source
        for node in each.tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def _values(node: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if name in constants:
            yield constants[name]
        case ast.IfExp():
            yield from _values(node.body, constants)
            yield from _values(node.orelse, constants)
        case _:
            return


def _sentences(node: ast.expr, module: Module, call: ast.Call) -> Iterator[str]:
    """Yield the texts of an expression, or of the last assignment above the call to its name."""
    if not isinstance(node, ast.Name):
        yield from (text for text in texts_of(node) if " " in text)
        return
    assigned = [
        each
        for each in module.find(ast.Assign)
        if each.lineno <= call.lineno
        and any(isinstance(target, ast.Name) and target.id == node.id for target in each.targets)
    ]
    if assigned:
        nearest = max(assigned, key=lambda each: each.lineno)
        yield from (text for text in texts_of(nearest.value) if " " in text)
