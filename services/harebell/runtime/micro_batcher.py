"""A micro batcher, which handles simultaneous requests together, such as in one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

MAX_BATCH: Final = 500  # requests
GATHER_TIME: Final = 0.005  # seconds in which more requests may join a batch

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class MicroBatcher(Generic[RequestT, ResultT]):
    """A queue of requests that `handle` processes in batches.

    `handle` returns one result for each request, in the same order. The number of callers bounds
    the queue.
    """

    def __init__(
        self, handle: Callable[[Sequence[RequestT]], Awaitable[Sequence[ResultT]]]
    ) -> None:
        self._handle = handle
        self._queue: asyncio.Queue[tuple[RequestT, asyncio.Future[ResultT]]] = asyncio.Queue()

    async def submit(self, request: RequestT) -> ResultT:
        """Return the result of the request. Raise each error of `handle`."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, future))
        return await future

    async def run(self) -> None:
        """Handle requests until the task is cancelled."""
        while True:
            batch = [await self._queue.get()]
            await asyncio.sleep(GATHER_TIME)
            while len(batch) < MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._handle_batch([each for each in batch if not each[1].done()])

    async def _handle_batch(
        self, batch: Sequence[tuple[RequestT, asyncio.Future[ResultT]]]
    ) -> None:
        try:
            results = await self._handle([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001  # each caller of `submit` receives the error
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():  # the caller may have been cancelled
                future.set_result(result)
