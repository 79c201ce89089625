"""A worker that completes each delegated run at once, in a process of its own.

`python -m tests.benchmarks.worker_process URL TENANT QUEUE` prints a line when it begins.
"""

import asyncio
import sys
from typing import Final

from harebell.client import Client
from harebell.client.worker import DelegatedCall, consume
from harebell.contract.types import Json

MAX_RUNS: Final = 100  # of the worker at one time


async def complete(call: DelegatedCall) -> Json:
    return {"attempt": call.attempt}


async def main(url: str, tenant: str, queue: str) -> None:
    async with Client.connect(url, tenant=tenant, name="bench-worker") as client:
        print("started", flush=True)  # noqa: T201  # the benchmark waits for this line
        await consume(client, url, queue=queue, handler=complete, concurrency=MAX_RUNS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
