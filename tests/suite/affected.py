"""The tests whose modules have changed: in the working tree, and on the branch since its base.

A test is affected if it imports a changed module, directly or through other modules. A changed
module of the tests also affects the folder of each `conftest.py` that imports it. `make test`
shows the rest: a service that a test starts as a process, and files without imports.
"""

import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grimp

SOURCES: Final = ("services", "schemas", ".")  # folders of packages, as in `pythonpath`
PACKAGES: Final = ("harebell", "tests")
CONFTEST: Final = "conftest"
BASES: Final = ("origin/HEAD", "origin/main", "main")  # the first that exists is the base


@dataclass(frozen=True, kw_only=True)
class Affected:
    """Test files, and the changed files that no import leads to."""

    tests: tuple[str, ...]
    without_imports: tuple[str, ...]


def affected_tests(changed: Collection[str], graph: grimp.ImportGraph) -> Affected:
    """Return the tests that the changed files affect. Paths are relative to the root."""
    modules = {path: name for path in changed if (name := module_of(path)) in graph.modules}
    names, folders = set(modules.values()), set[str]()
    for name in modules.values():
        found = {name, *graph.find_downstream_modules(name)}
        names |= found
        if name.startswith("tests."):
            folders |= {each.rpartition(".")[0] for each in found if each.endswith(f".{CONFTEST}")}
    tests = {
        name
        for name in graph.modules
        if _is_test(name) and (name in names or _is_below(name, folders))
    }
    return Affected(
        tests=tuple(sorted(f"{name.replace('.', '/')}.py" for name in tests)),
        without_imports=tuple(sorted(set(changed) - set(modules))),
    )


def module_of(path: str) -> str | None:
    """Return the module in a file: `harebell.cli.main` for `services/harebell/cli/main.py`."""
    file = Path(path)
    if file.suffix != ".py":
        return None
    parts = file.with_suffix("").parts
    if parts[0] in SOURCES:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_test(name: str) -> bool:
    return name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")


def _is_below(name: str, folders: Iterable[str]) -> bool:
    return any(name.startswith(f"{folder}.") for folder in folders)


def changed_files(base: str | None = None) -> Iterator[str]:
    """Yield the files that differ from the common commit with the base, also the untracked ones."""
    base = base or next(filter(_exists, BASES), "HEAD")
    yield from _git("diff", "--name-only", "--merge-base", base)
    yield from _git("ls-files", "--others", "--exclude-standard")


def import_graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def _exists(name: str) -> bool:
    command = ("git", "rev-parse", "--quiet", "--verify", name)
    return not subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode  # noqa: S603  # fixed


def _git(*arguments: str) -> list[str]:
    command = ("git", *arguments)
    run = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # fixed
    return run.stdout.splitlines()
