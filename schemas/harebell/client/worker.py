"""A worker: a program that consumes the calls of delegated runs and reports their ends.

    async with Client.connect(url, tenant="acme") as client:
        await consume(client, url, queue="acme.exports", handler=export)

Your handler receives a `DelegatedCall`. Its result completes the run, and an exception fails the
attempt. Heartbeats are sent for you, so the handler must not block the event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final, Self, TypeAlias

import orjson
from aio_pika.abc import AbstractIncomingMessage

from harebell.client.client import Client
from harebell.connection.amqp import close, connect, translate_amqp_errors
from harebell.contract import __version__
from harebell.contract.amqp_names import ATTEMPT, FENCING_TOKEN, HEARTBEAT, RUN_ID
from harebell.contract.errors import BrokerUnavailable, CommandRejected, InvalidInput, Transient
from harebell.contract.types import Json

HEARTBEATS_PER_LEASE: Final = 3  # so that two lost heartbeats do not end the lease
RETRY_PAUSE: Final = 1.0  # seconds before a repeat of a report or of a connection
MAX_REPORT_TIME: Final = 86_400.0  # seconds; no lease ends while Harebell cannot read reports
MAX_REASON: Final = 1024  # characters

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class WorkFailed(Exception):
    """A failure with its code, and the other fields of `run.fail`."""

    code: str = field(kw_only=False)
    reason: str = ""
    retryable: bool = True
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedCall:
    """The call of one attempt of a delegated run. `heartbeat` is the lease in seconds."""

    run_id: str
    fencing_token: int
    attempt: int
    heartbeat: float
    headers: Mapping[str, Any]
    body: bytes

    @classmethod
    def read(cls, headers: Mapping[str, Any], body: bytes) -> Self:
        """Return the call of an AMQP message or of an HTTP request. Raise `InvalidInput`."""
        found = {str(name).lower(): value for name, value in headers.items()}
        try:
            return cls(
                run_id=str(found[RUN_ID.lower()]),
                fencing_token=int(found[FENCING_TOKEN.lower()]),
                attempt=int(found[ATTEMPT.lower()]),
                heartbeat=float(found[HEARTBEAT.lower()]),
                headers=headers,
                body=body,
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"The call must have the headers of a delegated run: {error}."
            raise InvalidInput(reason, field="headers", code="not_delegated") from None

    def json(self) -> Json:
        """Return the body as JSON."""
        return orjson.loads(self.body)


Handler: TypeAlias = Callable[[DelegatedCall], Awaitable[Json]]
Receiver: TypeAlias = Callable[[AbstractIncomingMessage], Awaitable[None]]


async def consume(
    client: Client, url: str, *, queue: str, handler: Handler, concurrency: int = 10
) -> None:
    """Consume the calls in `queue` until the task is cancelled, and reconnect after each loss.

    At most `concurrency` handlers run. A cancellation stops them, and their leases then expire.
    """
    slots = asyncio.Semaphore(concurrency)
    async with asyncio.TaskGroup() as group:

        async def receive(message: AbstractIncomingMessage) -> None:
            group.create_task(_receive(client, message, slots=slots, handler=handler))

        while True:
            try:
                await _consume_once(url, queue, receive, prefetch=concurrency)
            except BrokerUnavailable as error:
                log.warning("queue not consumed: %s", error.reason)
            await asyncio.sleep(RETRY_PAUSE)


async def _consume_once(url: str, queue: str, receive: Receiver, *, prefetch: int) -> None:
    connection = await connect(url, name=f"worker of {queue}", properties={"version": __version__})
    try:
        with translate_amqp_errors(f"The queue {queue} cannot be consumed"):
            channel = await connection.channel()
            closed = asyncio.Event()
            channel.close_callbacks.add(lambda *_: closed.set())
            await channel.set_qos(prefetch_count=prefetch)
            await (await channel.get_queue(queue, ensure=False)).consume(receive)
            await closed.wait()
    finally:
        await close(connection)


async def _receive(
    client: Client, message: AbstractIncomingMessage, *, slots: asyncio.Semaphore, handler: Handler
) -> None:
    """Acknowledge a call when its handler starts. A call that waits for that has heartbeats."""
    try:
        call = DelegatedCall.read(message.headers, message.body)
    except InvalidInput as error:
        log.warning("message refused: %s", error.reason)
        await _answer(message.reject())
        return

    async def handle(call: DelegatedCall) -> Json:
        async with slots:
            await _answer(message.ack())  # the lease of the run now protects the work
            return await handler(call)

    await work(client, call, handle)


async def work(client: Client, call: DelegatedCall, handler: Handler) -> None:
    """Call the handler after the first heartbeat, and report its end.

    A call with an old token does not reach the handler. A stop request cancels the handler.
    """
    task: asyncio.Task[Json | WorkFailed] | None = None
    stop_reason: str | None = None
    try:
        while stop_reason is None and (task is None or not task.done()):
            try:
                heartbeat = await client.heartbeat(call.run_id, call.fencing_token)
            except Transient as error:
                log.warning("heartbeat of %s failed: %s", call.run_id, error.reason)
                await asyncio.sleep(RETRY_PAUSE)
                continue
            stop_reason = heartbeat.stop_reason
            if stop_reason is None:
                task = task or asyncio.create_task(_outcome(handler, call))
                await asyncio.wait([task], timeout=call.heartbeat / HEARTBEATS_PER_LEASE)
    except CommandRejected as error:
        log.warning("run %s has another attempt: %s", call.run_id, error.reason)
        return
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
    stopped = WorkFailed("stopped", reason=f"The run was stopped: {stop_reason}.")
    await _report(client, call, stopped if task is None or task.cancelled() else task.result())


async def _outcome(handler: Handler, call: DelegatedCall) -> Json | WorkFailed:
    try:
        return await handler(call)
    except WorkFailed as failure:
        return failure
    except Exception as error:  # a handler may raise any error
        log.exception("handler of %s failed", call.run_id)
        return WorkFailed("worker_failed", reason=f"{type(error).__name__}: {error}"[:MAX_REASON])


async def _report(client: Client, call: DelegatedCall, outcome: Json | WorkFailed) -> None:
    """Report the end until Harebell has answered, because each repeat is harmless."""
    ref = (call.run_id, call.fencing_token)
    async with asyncio.timeout(MAX_REPORT_TIME):
        while True:
            try:
                if isinstance(outcome, WorkFailed):
                    await client.fail_run(*ref, **asdict(outcome))
                else:
                    await client.complete_run(*ref, result=outcome)
            except Transient:
                await asyncio.sleep(RETRY_PAUSE)
            except CommandRejected as error:
                log.warning("report of %s rejected: %s", call.run_id, error.reason)
                return
            else:
                return


async def _answer(answer: Awaitable[Any]) -> None:
    """Answer the broker. After a lost connection, the broker delivers the message again."""
    with suppress(BrokerUnavailable), translate_amqp_errors("The message is not acknowledged"):
        await answer
