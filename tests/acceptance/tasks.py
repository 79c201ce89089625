"""Tasks that executors run for the tests."""

import os
import signal
from pathlib import Path
from typing import Any

from opentelemetry import trace

from harebell.executor.tasks import TaskContext


def kill_executor(_: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def remind(args: dict[str, Any], context: TaskContext) -> None:
    """Append the run id to the file of the arguments."""
    with Path(args["file"]).open("a", buffering=1) as record:
        record.write(f"{context.run_id}\n")


def current_trace(_: dict[str, Any], context: TaskContext) -> dict[str, str | None]:
    """Return the trace of the context, and the one of the current span of OpenTelemetry."""
    span = trace.get_current_span().get_span_context()
    return {"traceparent": context.traceparent, "current_span": f"{span.span_id:016x}"}


def steps(_: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    """Fail after a report in the first attempt. Return the checkpoint in the second one."""
    if context.attempt == 1:
        context.progress(50, "one of two", {"step": 1})
        raise RuntimeError("The first attempt fails.")
    return {"continued_at": context.checkpoint}
