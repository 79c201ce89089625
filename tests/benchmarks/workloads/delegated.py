"""Delegated runs: a worker in its own process completes each run by a report."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import aio_pika
from tests.acceptance.stack import Tenant
from tests.benchmarks import worker_process
from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.rig import Rig, Scale
from tests.benchmarks.workloads.stampede import measure_costs

RATE: Final = 200  # runs a second
SECONDS: Final = 10
STOP_TIMEOUT: Final = 10.0  # seconds
# From the due time of a run to the report of its worker, which the ticker has recorded.
_COMPLETIONS: Final = """
SELECT extract(epoch FROM finished_at - due_at)::float8 AS seconds FROM runs
WHERE tenant = $1 AND state = 'succeeded'
"""


async def worker(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the time to the recorded completion, and the CPU without that of the worker."""
    number = RATE * SECONDS
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            queue = await declare_queue(tenant)
            call = {"exchange": queue, "json": {"n": 1}, "completion": "worker"}
            with worker_started(tenant, queue):
                wave = await rig.load(tenant, number, rate=RATE, target={"amqp": call})
                async with measure_costs(rig, wave) as costs:
                    pass
            rows = await tenant.ledger.fetch(_COMPLETIONS, tenant.name)
            report.add(
                "worker",
                rate=RATE,
                n=number,
                done_ms=lateness([row["seconds"] for row in rows]),
                **costs.figures(number),
            )


async def declare_queue(tenant: Tenant) -> str:
    """Declare the exchange and the queue of the calls, which have the same name."""
    name = f"{tenant.name}.work"
    async with await aio_pika.connect(tenant.stack.amqp_url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, durable=True)
        queue = await channel.declare_queue(
            name, durable=True, arguments={"x-queue-type": "quorum"}
        )
        await queue.bind(exchange, "")
    return name


@contextmanager
def worker_started(tenant: Tenant, queue: str) -> Iterator[None]:
    command = [sys.executable, "-m", worker_process.__name__]
    arguments = [tenant.stack.amqp_url, tenant.name, queue]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # ours
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n", "The worker did not start."
            yield
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT)
