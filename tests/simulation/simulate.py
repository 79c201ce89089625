"""The simulation of one seed, from a new scenario to its report."""

import asyncio
import random
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NoReturn
from unittest.mock import patch

import structlog
from tests.simulation.loop import PROCESS, NothingScheduled, virtual_time
from tests.simulation.process import Process
from tests.simulation.scenario import Scenario

from harebell.dispatcher import service as dispatcher_service
from harebell.executor import completer
from harebell.runtime import clock
from harebell.runtime.retries import WriteConflict

# Periodic checks rarely find work, and at their real pace they would take most of all steps.
RELEASE_INTERVAL: Final = 0.2  # seconds
EVENT_INTERVAL: Final = 0.5  # seconds between two publications of events by a completer
SAMPLES_PER_REFRESH: Final = 2  # of the database clock
MAX_CANCELLATIONS: Final = 20  # of the remaining tasks at the end
MAX_LOG_LINE: Final = 200  # characters

_current: list[Scenario] = []  # the running scenario, which receives all log lines


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of one scenario. Counts are numbers of events."""

    seed: int
    violation: str | None
    trace: list[str]
    entered_states: Counter[str]  # of runs
    counts: Counter[str]
    cpu: float  # seconds


def simulate(
    seed: int, *, verbose: bool = False, fixed_rates: Mapping[str, float] | None = None
) -> Report:
    """Return the report of the seed, which is the same at each call with one PYTHONHASHSEED.

    `fixed_rates` replace the random rates of these faults.
    """
    started = time.process_time()
    with virtual_time() as loop, _repeatable(seed):
        scenario = Scenario(seed=seed, loop=loop, is_verbose=verbose, fixed_rates=fixed_rates or {})
        _current[:] = [scenario]
        try:
            loop.run_until_complete(scenario.run())
        except NothingScheduled:
            scenario.fail("no callback and no timer is left")
        except ExceptionGroup as errors:
            scenario.fail(f"a response is wrong: {_wrong_response(errors)}")
        _end(scenario)
    _current.clear()
    return Report(
        seed=seed,
        violation=scenario.violation,
        trace=list(scenario.steps),
        entered_states=scenario.entered_states,
        counts=scenario.counts,
        cpu=time.process_time() - started,
    )


def _wrong_response(errors: ExceptionGroup[Exception]) -> str:
    """Return the first failed assertion of a user. Raise errors that are no assertions."""
    wrong, others = errors.split(AssertionError)
    if wrong is None or others is not None:
        raise errors
    error: BaseException = wrong
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error)


@contextmanager
def _repeatable(seed: int) -> Generator[None]:
    """Make jitter and the names of lease holders repeatable, and periodic checks less frequent."""
    random.seed(seed)
    tokens = Random(seed)  # noqa: S311  # for a repetition, not for a secret
    with (
        patch.object(secrets, "token_hex", lambda length: tokens.randbytes(length).hex()),
        patch.object(completer, "EVENT_INTERVAL", EVENT_INTERVAL),
        patch.object(dispatcher_service, "RELEASE_INTERVAL", RELEASE_INTERVAL),
        patch.object(clock, "SAMPLES_PER_REFRESH", SAMPLES_PER_REFRESH),
    ):
        yield


def _end(scenario: Scenario) -> None:
    """End all tasks, because the garbage collector would end them in the next scenario."""
    scenario.supervisor.end()
    for _ in range(MAX_CANCELLATIONS):
        remaining = asyncio.all_tasks(scenario.loop)
        if not remaining:
            return
        for task in remaining:
            task.cancel()
        scenario.loop.run_until_complete(asyncio.sleep(1))
    raise AssertionError(f"Every task must end after its cancellation: {remaining}")


def _receive_log(_: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
    """Add the log line to the steps. An unexpected error of a service is a violation."""
    scenario, process, error = _current[0], PROCESS.get(), sys.exception()
    name = process.name if isinstance(process, Process) else "no process"
    fields = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
    scenario.trace(f"{name}: {event['event']} {fields}"[:MAX_LOG_LINE])
    is_over = isinstance(process, Process) and process.is_over
    # Two tickers can apply one command. The second one receives this error and retries.
    is_expected = isinstance(error, WriteConflict)
    if (method == "exception" or event.get("exc_info")) and not is_over and not is_expected:
        last = "".join(traceback.format_exception(error)[-3:])
        scenario.fail(f"{event['event']}: {last}")
    raise structlog.DropEvent


structlog.configure(processors=[_receive_log])
