"""A worker that copies a table: one delegated run for each message of its queue.

Run it with the login of the tenant:
`python worker.py amqp://acme:password@broker/ acme acme.exports`.
"""

import asyncio
import sys

from harebell.client import Client
from harebell.client.worker import DelegatedCall, WorkFailed, consume
from harebell.contract.types import Json


async def export(call: DelegatedCall) -> Json:
    """Copy a table in steps, which stand for hours of work."""
    request = call.json()
    if "table" not in request:
        raise WorkFailed("invalid_request", reason="The body has no table.", retryable=False)
    for _ in range(int(request.get("steps", 3))):
        await asyncio.sleep(float(request.get("seconds", 1)))
    return {"table": request["table"], "attempt": call.attempt}


async def main(url: str, tenant: str, queue: str) -> None:
    async with Client.connect(url, tenant=tenant, name="export-worker") as client:
        await consume(client, url, queue=queue, handler=export)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
