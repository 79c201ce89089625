"""Which tasks there are: found by entry point, loaded once, known by name."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeAlias

import structlog

from harebell.contract.target import TaskCall
from harebell.contract.types import MAX_DURATION
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import (
    AttemptContext,
    Outcome,
    Success,
    error_text,
    excerpt,
    json_excerpt,
)
from harebell.executor.tasks import Permanent, RetryLater, TaskContext
from harebell.runtime.clock import monotonic

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
    except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
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


MAX_THREADS: Final = 64  # plain tasks at a time, by default; more of them wait, on their own time


class TaskTargets:
    """A plain task that outlives its timeout keeps its thread: a thread cannot be stopped."""

    def __init__(self, tasks: Mapping[str, Task], *, threads: int = MAX_THREADS) -> None:
        self._tasks = tasks
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="harebell-task")

    async def call(self, call: TaskCall, attempt: AttemptContext, seconds: float) -> Outcome:
        match self._tasks.get(call.name):
            case None:
                reason = f"this executor has no task {call.name!r}"
                return Failure("unknown_task", excerpt(reason), retryable=False)
            case BrokenTask(reason):
                return Failure("task_not_loaded", reason)
            case LoadedTask() as task:
                context = [_context(attempt, seconds)] if task.takes_context else []
                return await self._outcome(task, [call.args, *context])

    def close(self) -> None:
        """What has not begun never will; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _outcome(self, task: LoadedTask, given: list[Any]) -> Outcome:
        try:
            return Success(result=json_excerpt(await self._result(task, given)))
        except asyncio.CancelledError as error:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            return Failure("task_failed", error_text(error))  # the task's own doing
        except Permanent as error:
            return Failure("task_failed", error_text(error), retryable=False)
        except RetryLater as error:
            wait = min(error.after, MAX_DURATION)  # a date that far can still be reckoned
            return Failure("retry_later", excerpt(str(error)), retry_after=wait)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # anything a task may do
            return Failure("task_failed", error_text(error))

    async def _result(self, task: LoadedTask, given: list[Any]) -> Any:  # noqa: ANN401
        if task.is_async:
            return await task.function(*given)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._pool, _run, task.function, given)
        # a plain wrapper around an async function has only made the coroutine
        return await result if inspect.isawaitable(result) else result


def _run(function: Callable[..., Any], given: list[Any]) -> Any:  # noqa: ANN401
    try:
        return function(*given)
    except StopIteration as error:  # a future refuses it, and would never be done
        raise RuntimeError("StopIteration") from error


def _context(attempt: AttemptContext, seconds: float) -> TaskContext:
    return TaskContext(
        run_id=attempt.ticket.run_id,
        attempt=attempt.number,
        fencing_token=attempt.token,
        scheduled_for=attempt.ticket.scheduled_for,
        deadline=monotonic() + seconds,
    )
