"""Unit tests of the task target: each call of a task ends in an outcome."""

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
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.task import BrokenTask, TaskTargets, installed_tasks, tasks_of
from harebell.executor.tasks import Permanent, RetryLater, TaskContext
from harebell.runtime.clock import monotonic

SECONDS = 5.0
Args = dict[str, Any]
Call = Callable[..., Coroutine[Any, Any, TargetOutcome]]


@pytest.fixture
def call_task() -> Iterator[Call]:
    opened = []

    async def call_once(task: Callable[..., Any], **args: Any) -> TargetOutcome:
        targets = TaskTargets(tasks_of({"t": task}), threads=1)
        opened.append(targets)
        replayed = attempt(replay_number=args.pop("replay_number", 0))
        return await targets.call(TaskCall(name="t", args=args), replayed, SECONDS)

    yield call_once
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


async def test_synchronous_task_runs_in_a_thread(call_task: Call) -> None:
    outcome = await call_task(lambda _: threading.current_thread().name)

    assert isinstance(outcome, Success)
    assert outcome.result is not None
    assert outcome.result.startswith('"harebell-task')


async def test_async_task_runs_on_the_event_loop(call_task: Call) -> None:
    async def task(args: Args) -> object:
        await asyncio.sleep(0)
        return {**args, "thread": threading.current_thread().name}

    assert await call_task(task, a=1) == Success(result='{"a":1,"thread":"MainThread"}')


async def test_awaitable_of_a_synchronous_wrapper_is_awaited(call_task: Call) -> None:
    async def task(args: Args) -> Args:
        await asyncio.sleep(0)
        return args

    class Async:
        async def __call__(self, args: Args) -> Args:
            return await task(args)

    def wrapper(*args: Args) -> Awaitable[Args]:
        return task(*args)

    for disguised in (wrapper, partial(task), Async()):
        assert await call_task(disguised, a=1) == Success(result='{"a":1}')


async def test_task_receives_the_context_as_its_second_parameter(call_task: Call) -> None:
    seen: list[TaskContext] = []

    def task(_: Args, context: TaskContext) -> None:
        seen.append(context)

    started = monotonic()
    assert await call_task(task) == Success()

    (context,) = seen
    assert (context.run_id, context.attempt) == (attempt().ticket.run_id, 1)
    assert (context.fencing_token, context.scheduled_for) == (2, NINE)
    assert started + SECONDS <= context.deadline <= monotonic() + SECONDS


@pytest.mark.requirement("ASK-3")
async def test_context_contains_the_replay_number(call_task: Call) -> None:
    async def task(_: Args, context: TaskContext) -> int:
        return context.replay_number

    outcomes = [await call_task(task), await call_task(task, replay_number=2)]

    assert outcomes == [Success(result="0"), Success(result="2")]


async def test_task_receives_no_context_when_the_second_parameter_has_a_default(
    call_task: Call,
) -> None:
    def task(_: Args, times: int = 3, *, flag: bool = True) -> list[object]:
        return [times, flag]

    assert await call_task(task) == Success(result="[3,true]")


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
            Failure("retry_later", "The task requested a later attempt.", retry_after=MAX_DURATION),
        ),
    ],
)
async def test_outcome_is_a_failure_when_the_task_raises(
    call_task: Call,
    raising: Callable[[BaseException], Callable[..., Any]],
    error: BaseException,
    failure: Failure,
) -> None:
    assert await call_task(raising(error)) == failure


async def test_call_ends_when_the_task_raises_stop_iteration(call_task: Call) -> None:
    assert await call_task(raising(StopIteration())) == Failure(
        "task_failed", "RuntimeError: StopIteration"
    )


@pytest.mark.requirement("S15")
async def test_unknown_task_is_a_permanent_failure() -> None:
    targets = TaskTargets({})

    outcome = await targets.call(TaskCall(name="acme.report"), attempt(), SECONDS)
    targets.close()

    reason = "The executor must have the task, but it has no 'acme.report'."
    assert outcome == Failure("unknown_task", reason, retryable=False)


async def test_broken_task_is_a_retryable_failure() -> None:
    targets = TaskTargets({"acme.report": BrokenTask("ImportError: numpy")})

    outcome = await targets.call(TaskCall(name="acme.report"), attempt(), SECONDS)
    targets.close()

    assert outcome == Failure("task_not_loaded", "ImportError: numpy")


async def test_cancelled_attempt_raises_instead_of_a_failure(call_task: Call) -> None:
    async def task(_: Args) -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(call_task(task))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_installed_tasks_include_the_examples() -> None:
    targets = TaskTargets(installed_tasks(examples=True))

    echo = await targets.call(TaskCall(name="harebell.echo", args={"a": 1}), attempt(), SECONDS)
    sleep = await targets.call(
        TaskCall(name="harebell.sleep", args={"seconds": 0}), attempt(), SECONDS
    )
    targets.close()

    assert (echo, sleep) == (Success(result='{"a":1}'), Success())
    assert "harebell.executor.tasks" in sys.modules


@pytest.mark.requirement("P11")
async def test_production_has_no_example_task() -> None:
    targets = TaskTargets(installed_tasks(examples=False))

    outcome = await targets.call(TaskCall(name="harebell.sleep"), attempt(), SECONDS)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("unknown_task", False)
