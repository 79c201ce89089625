"""The tree reads the same in every service, and both roots make one namespace."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import OURS, SCHEMAS, SERVICES

SERVICE_NAMES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector")
FORBIDDEN_NAMES: Final = {"utils", "util", "helpers", "common", "manager", "models", "misc"}


@pytest.mark.parametrize("root", [SERVICES, SCHEMAS])
def test_the_namespace_has_no_init_which_would_hide_the_other_root(root: Path) -> None:
    assert (root / "harebell").is_dir()
    assert not (root / "harebell" / "__init__.py").exists()


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_every_service_has_its_rules_its_shell_and_its_start(service: str) -> None:
    folder = SERVICES / "harebell" / service

    assert (folder / "core.py").exists() != (folder / "core").is_dir()
    assert (folder / "service.py").exists()
    assert (folder / "__main__.py").exists()


@pytest.mark.parametrize("service", SERVICE_NAMES)
def test_every_service_says_in_a_word_what_it_does(service: str) -> None:
    tree = ast.parse((SERVICES / "harebell" / service / "__init__.py").read_text())

    first = (ast.get_docstring(tree) or "").splitlines()[0]
    assert re.fullmatch(r"[A-Z].*\.", first)
    assert len(tree.body) == 1, "nothing but its docstring"


def test_packages_say_that_they_are_typed() -> None:
    packages = {module.path.parent for module in OURS if module.path.name == "__init__.py"}
    tops = {folder for folder in packages if folder.parent.name == "harebell"}

    assert [str(folder) for folder in tops if not (folder / "py.typed").exists()] == []


def test_modules_are_nouns_of_the_domain() -> None:
    assert [str(module) for module in OURS if module.path.stem in FORBIDDEN_NAMES] == []
