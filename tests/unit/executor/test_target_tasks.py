"""Tasks: found, called, and whatever they do ends in an outcome."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import pytest
from tests.fakes.attempts import NINE, attempt

from harebell.contract.target import TaskCall
from harebell.contract.types import MAX_DURATION
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Outcome, Success
from harebell.executor.targets.task import BrokenTask, TaskTargets, installed_tasks, tasks_of
from harebell.executor.tasks import Permanent, RetryLater, TaskContext
from harebell.runtime.clock import monotonic

SECONDS = 5.0
Args = dict[str, Any]
Perform = Callable[..., Coroutine[Any, Any, Outcome]]


@pytest.fixture
def perform() -> Iterator[Perform]:
    opened = []

    async def one(task: Callable[..., Any], **args: object) -> Outcome:
        targets = TaskTargets(tasks_of({"t": task}), threads=1)
        opened.append(targets)
        return await targets.call(TaskCall(name="t", args=args), attempt(), SECONDS)

    yield one
    for targets in opened:
        targets.close()


def raising(error: BaseException) -> Callable[[Args], NoReturn]:
    def task(_: Args) -> NoReturn:
        raise error

    return task


def raising_async(error: BaseException) -> Callable[[Args], Awaitable[None]]:
    async def task(_: Args) -> None:
        raise error

    return task


async def test_a_plain_task_runs_in_a_thread(perform: Perform) -> None:
    outcome = await perform(lambda _: threading.current_thread().name)

    assert isinstance(outcome, Success)
    assert outcome.result is not None
    assert outcome.result.startswith('"harebell-task')


async def test_an_async_task_runs_on_the_loop(perform: Perform) -> None:
    async def task(args: Args) -> object:
        await asyncio.sleep(0)
        return {**args, "thread": threading.current_thread().name}

    assert await perform(task, a=1) == Success(result='{"a":1,"thread":"MainThread"}')


async def test_what_only_looks_plain_is_awaited_too(perform: Perform) -> None:
    async def task(args: Args) -> Args:
        await asyncio.sleep(0)
        return args

    class Async:
        async def __call__(self, args: Args) -> Args:
            return await task(args)

    def wrapper(*args: Args) -> Awaitable[Args]:
        return task(*args)

    for disguise in (wrapper, partial(task), Async()):
        assert await perform(disguise, a=1) == Success(result='{"a":1}')


async def test_a_second_parameter_is_the_context(perform: Perform) -> None:
    seen: list[TaskContext] = []

    def task(_: Args, context: TaskContext) -> None:
        seen.append(context)

    started = monotonic()
    assert await perform(task) == Success()

    (context,) = seen
    assert (context.run_id, context.attempt) == (attempt().ticket.run_id, 1)
    assert (context.fencing_token, context.scheduled_for) == (2, NINE)
    assert started + SECONDS <= context.deadline <= monotonic() + SECONDS


async def test_a_parameter_with_a_default_is_not(perform: Perform) -> None:
    def task(_: Args, times: int = 3, *, flag: bool = True) -> list[object]:
        return [times, flag]

    assert await perform(task) == Success(result="[3,true]")


@pytest.mark.parametrize("raising", [raising, raising_async])
@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (KeyError("seconds"), Failure("task_failed", "KeyError: 'seconds'")),
        (TimeoutError("theirs"), Failure("task_failed", "TimeoutError: theirs")),
        (SystemExit(1), Failure("task_failed", "SystemExit: 1")),
        (asyncio.CancelledError("own"), Failure("task_failed", "CancelledError: own")),
        (Permanent("no"), Failure("task_failed", "Permanent: no", retryable=False)),
        (
            RetryLater(timedelta(seconds=9), "busy"),
            Failure("retry_later", "busy", retry_after=timedelta(seconds=9)),
        ),
        (
            RetryLater(timedelta.max),
            Failure("retry_later", "asked to be tried later", retry_after=MAX_DURATION),
        ),
    ],
)
async def test_what_a_task_raises_is_its_failure(
    perform: Perform,
    raising: Callable[[BaseException], Callable[..., Any]],
    error: BaseException,
    failure: Failure,
) -> None:
    assert await perform(raising(error)) == failure


async def test_an_end_of_iteration_does_not_hang(perform: Perform) -> None:
    assert await perform(raising(StopIteration())) == Failure(
        "task_failed", "RuntimeError: StopIteration"
    )


@pytest.mark.requirement("S15")
async def test_a_task_that_nobody_has_is_a_failure_for_good() -> None:
    targets = TaskTargets({})

    outcome = await targets.call(TaskCall(name="acme.report"), attempt(), SECONDS)
    targets.close()

    reason = "this executor has no task 'acme.report'"
    assert outcome == Failure("unknown_task", reason, retryable=False)


async def test_a_task_that_is_not_loaded_fails_alone() -> None:
    targets = TaskTargets({"acme.report": BrokenTask("ImportError: numpy")})

    outcome = await targets.call(TaskCall(name="acme.report"), attempt(), SECONDS)
    targets.close()

    assert outcome == Failure("task_not_loaded", "ImportError: numpy")


async def test_a_cancelled_attempt_is_not_the_tasks_failure(perform: Perform) -> None:
    async def task(_: Args) -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(perform(task))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_tasks_that_are_installed() -> None:
    targets = TaskTargets(installed_tasks())

    echo = await targets.call(TaskCall(name="harebell.echo", args={"a": 1}), attempt(), SECONDS)
    sleep = await targets.call(
        TaskCall(name="harebell.sleep", args={"seconds": 0}), attempt(), SECONDS
    )
    targets.close()

    assert (echo, sleep) == (Success(result='{"a":1}'), Success())
    assert "harebell.executor.tasks" in sys.modules
