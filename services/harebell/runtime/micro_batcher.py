"""Questions that come at about the same time, answered together: one transaction for them all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

MAX_BATCH: Final = 500  # of one answer
GATHER: Final = 0.005  # seconds for more to come

Q = TypeVar("Q")
A = TypeVar("A")


class MicroBatcher(Generic[Q, A]):
    """`answer` gives one answer for each question, in their order."""

    def __init__(self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._answer = answer
        self._asked: asyncio.Queue[tuple[Q, asyncio.Future[A]]] = asyncio.Queue()  # by who waits

    async def submit(self, question: Q) -> A:
        """Raises what answering raises."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((question, future))
        return await future

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            batch = [await self._asked.get()]
            await asyncio.sleep(GATHER)
            while len(batch) < MAX_BATCH and not self._asked.empty():
                batch.append(self._asked.get_nowait())
            await self._tell([each for each in batch if not each[1].done()])

    async def _tell(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._answer([question for question, _ in batch])
        except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():  # whoever asked may have gone
                future.set_result(answer)
