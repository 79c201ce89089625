"""The Celery application with its task and its sender, for the Python environment of Celery.

`python bench.py` reads lines of `number first step mode` from tests/benchmarks/peers/peer.py.
With a database for results, each publish waits for its confirm and each task has a result.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from struct import pack

from celery import Celery, group  # type: ignore[import-not-found]  # only the environment of Celery has it

GROUP_SIZE = 500  # tasks
PREFETCHED = 64  # tasks for each thread, as the Celery documentation recommends for short tasks

RESULTS = os.environ.get("BENCHMARK_RESULTS")
SENDERS = 16 if RESULTS else 1  # threads, because a publish waits for its confirm

app = Celery("bench", broker=os.environ["BENCHMARK_STORE"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=PREFETCHED,
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    broker_pool_limit=SENDERS,
)
if RESULTS:
    app.conf.update(
        broker_transport_options={"confirm_publish": True},
        result_backend=f"db+{RESULTS}",
        task_ignore_result=False,
    )


@app.task  # type: ignore[untyped-decorator]  # Celery has no types
def start(due: float) -> None:
    os.write(_file(), pack("2d", due, time.time()))


@cache
def _file() -> int:
    path = Path(os.environ["BENCHMARK_STARTS"]) / str(os.getpid())
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def send(number: int, first: float, step: float) -> None:
    def send_part(begin: int) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for each in range(begin, number, SENDERS):
                due = first + each * step if first else time.time()
                eta = datetime.fromtimestamp(due, UTC) if first else None
                start.apply_async((due,), eta=eta, producer=producer)

    call_each(send_part, range(SENDERS))


def send_groups(number: int) -> None:
    def send_group(begin: int) -> None:
        due, size = time.time(), min(GROUP_SIZE, number - begin)
        group(start.s(due) for _ in range(size)).apply_async()

    call_each(send_group, range(0, number, GROUP_SIZE))


def call_each(function: Callable[[int], None], values: range) -> None:
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(function, values))


def write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    write_json(
        {name: version(name) for name in ("celery", "kombu")}
        | {"python": platform.python_version()}
    )
    for line in sys.stdin:
        number, first, step, mode = line.split()
        if mode == "bulk" and not float(first):
            send_groups(int(number))
        else:
            send(int(number), float(first), float(step))
        write_json("sent")


if __name__ == "__main__":
    main()
