"""Which tasks there are: found by entry point, loaded once, known by name."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeAlias

import structlog

from harebell.executor.targets.outcome import error_text

GROUP: Final = "harebell.tasks"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task that can be called."""

    function: Callable[..., Any]
    is_async: bool
    takes_context: bool


@dataclass(frozen=True, slots=True)
class BrokenTask:
    """A task that is registered but cannot be called: it fails alone, the executor starts."""

    reason: str


Task: TypeAlias = LoadedTask | BrokenTask


def installed_tasks() -> dict[str, Task]:
    """What the distributions of this environment register."""
    points = entry_points(group=GROUP)
    counts = Counter(point.name for point in points)
    tasks = {point.name: _load(point, counts[point.name]) for point in points}
    for name, task in tasks.items():
        if isinstance(task, BrokenTask):
            log.warning("task not loaded", task=name, reason=task.reason)
    return tasks


def tasks_of(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Task]:
    """The same from callables at hand."""
    return {name: _task_of(function) for name, function in functions.items()}


def _task_of(function: object) -> Task:
    if not callable(function):
        return BrokenTask(f"{type(function).__name__} is not callable")
    return LoadedTask(function, inspect.iscoroutinefunction(function), _takes_context(function))


def _load(point: EntryPoint, times: int) -> Task:
    if times > 1:
        return BrokenTask(f"{times} distributions register this name")
    try:
        return _task_of(point.load())
    except Exception as error:  # noqa: BLE001  # whatever another team's module does on import
        return BrokenTask(error_text(error))


def _takes_context(function: Callable[..., Any]) -> bool:
    """Whether there is a second positional parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins have no signature
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    return len(needed) > 1
