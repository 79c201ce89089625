"""The task target: a Python callable, plain ones in a bounded pool of threads, async ones here."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from harebell.contract.scalars import MAX_DURATION
from harebell.contract.target import TaskCall
from harebell.executor.targets.attempt import AttemptContext
from harebell.executor.targets.outcome import Outcome, Success, error_text, excerpt, json_excerpt
from harebell.executor.targets.registry import BrokenTask, LoadedTask, Task
from harebell.executor.tasks import Permanent, RetryLater, TaskContext
from harebell.kernel.clock import monotonic
from harebell.kernel.retry import Failure

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
