"""The task target: Python tasks from entry points, which the executor loads once at its start."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeAlias

import orjson
import structlog

from harebell.connection.cancellation import is_being_cancelled
from harebell.contract.target import TaskCall
from harebell.contract.types import MAX_DURATION
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import (
    AttemptContext,
    Success,
    TargetOutcome,
    error_text,
    excerpt,
    failure_with,
    json_excerpt,
)
from harebell.executor.tasks import Permanent, RetryLater, TaskContext
from harebell.runtime import spans
from harebell.runtime.clock import monotonic

ENTRY_POINT_GROUP: Final = "harebell.tasks"
EXAMPLE_PREFIX: Final = "harebell."  # of the tasks that Harebell itself contains
MAX_THREADS: Final = 64  # simultaneous synchronous tasks by default; the wait of others counts

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task that the executor can call."""

    function: Callable[..., Any]
    is_async: bool
    takes_context: bool


@dataclass(frozen=True, slots=True)
class BrokenTask:
    """A registered task that the executor cannot call. Only the runs of this task fail."""

    reason: str


Task: TypeAlias = LoadedTask | BrokenTask


def installed_tasks(*, examples: bool) -> dict[str, Task]:
    """Load the tasks of the installed distributions, by name.

    Without `examples`, no task has a name that begins with `harebell.`, because `harebell.sleep`
    lets a tenant occupy slots.
    """
    points = [
        point
        for point in entry_points(group=ENTRY_POINT_GROUP)
        if examples or not point.name.startswith(EXAMPLE_PREFIX)
    ]
    counts = Counter(point.name for point in points)
    tasks = {point.name: _load(point, counts[point.name]) for point in points}
    for name, task in tasks.items():
        if isinstance(task, BrokenTask):
            log.warning("task not loaded", task=name, reason=task.reason)
    return tasks


def tasks_of(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Task]:
    """Return tasks of the given functions."""
    return {name: _task_of(function) for name, function in functions.items()}


def _load(point: EntryPoint, count: int) -> Task:
    if count > 1:
        return BrokenTask(f"The task must have one distribution, not {count}.")
    try:
        return _task_of(point.load())
    except Exception as error:  # noqa: BLE001  # the import of a task may raise any error
        return BrokenTask(error_text(error))


def _task_of(function: object) -> Task:
    if not callable(function):
        return BrokenTask(f"The task must be callable, not {type(function).__name__}.")
    return LoadedTask(function, inspect.iscoroutinefunction(function), _takes_context(function))


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether the function has a second positional parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins have no signature
        return False
    required = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    return len(required) > 1


class TaskTargets:
    """The tasks of an executor, and the threads of the synchronous tasks.

    A thread cannot be stopped. A synchronous task therefore keeps its thread after its timeout.
    """

    def __init__(self, tasks: Mapping[str, Task], *, threads: int = MAX_THREADS) -> None:
        self._tasks = tasks
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="harebell-task")

    async def call(self, call: TaskCall, attempt: AttemptContext, seconds: float) -> TargetOutcome:
        """Call the task and return its outcome. `seconds` sets the deadline in the context."""
        match self._tasks.get(call.name):
            case None:
                reason = f"The executor must have the task, but it has no {call.name!r}."
                return Failure("unknown_task", excerpt(reason), retryable=False, own=len(reason))
            case BrokenTask(reason):
                return Failure("task_not_loaded", reason, own=len(reason))
            case LoadedTask() as task:
                context = [_context(attempt, seconds)] if task.takes_context else []
                return await self._outcome(task, [call.args, *context])

    def close(self) -> None:
        """Cancel the waiting tasks. Do not wait for the running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _outcome(self, task: LoadedTask, arguments: list[Any]) -> TargetOutcome:
        try:
            return Success(result=json_excerpt(await self._result(task, arguments)))
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return failure_with("task_failed", error)  # the task itself raised the error
        except Permanent as error:
            return failure_with("task_failed", error, retryable=False)
        except RetryLater as error:
            wait = min(error.after, MAX_DURATION)  # a later time may overflow
            return Failure("retry_later", excerpt(str(error)), retry_after=wait)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a task may raise any error
            return failure_with("task_failed", error)

    async def _result(self, task: LoadedTask, arguments: list[Any]) -> Any:  # noqa: ANN401  # of any task
        if task.is_async:
            return await task.function(*arguments)
        loop = asyncio.get_running_loop()
        run = partial(_run, task.function, arguments)
        if spans.current() is not None:  # the thread needs the current span of the attempt
            run = partial(copy_context().run, run)
        result = await loop.run_in_executor(self._pool, run)
        # A synchronous wrapper of an async function has only returned the coroutine.
        return await result if inspect.isawaitable(result) else result


def _run(function: Callable[..., Any], arguments: list[Any]) -> Any:  # noqa: ANN401  # of any task
    try:
        return function(*arguments)
    except StopIteration as error:  # a future rejects this error and would never be done
        raise RuntimeError("StopIteration") from error


def _context(attempt: AttemptContext, seconds: float) -> TaskContext:
    return TaskContext(
        run_id=attempt.ticket.run_id,
        attempt=attempt.number,
        fencing_token=attempt.token,
        scheduled_for=attempt.ticket.scheduled_for,
        deadline=monotonic() + seconds,
        replay_number=attempt.ticket.replay_number,
        tenant=attempt.ticket.run_spec.tenant,
        traceparent=None if attempt.trace is None else attempt.trace.traceparent,
        tracestate=None if attempt.trace is None else attempt.trace.tracestate,
        checkpoint=None if attempt.checkpoint is None else orjson.loads(attempt.checkpoint),
        report=attempt.report,
    )
