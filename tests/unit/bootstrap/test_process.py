"""The order of the start and the stop of a service."""

import asyncio
import subprocess
import sys

from harebell.bootstrap.process import run_until

SERVICE = """
import sys
from harebell.bootstrap.process import run_service
from harebell.contract.events import RunEventData
from harebell.runtime.settings import IntakeSettings

assert not RunEventData.__pydantic_complete__

async def serve(settings, stop):
    sys.stdout.write(f"built: {RunEventData.__pydantic_complete__}")

environ = {
    "HAREBELL_AMQP_URL": "amqp://broker.example",
    "HAREBELL_DATABASE_URL": "postgresql://database.example/harebell",
}
run_service(IntakeSettings, "intake", serve, environ=environ)
"""


def test_service_builds_its_models_before_its_first_message() -> None:
    completed = subprocess.run(  # noqa: S603  # the command is a constant
        [sys.executable, "-c", SERVICE], capture_output=True, text=True, check=False
    )

    assert (completed.returncode, completed.stdout) == (0, "built: True"), completed.stderr


async def test_service_stopped_before_readiness_starts_nothing() -> None:
    begun: list[str] = []

    async def begin(name: str) -> None:
        begun.append(name)

    stop = asyncio.Event()
    stop.set()
    await run_until(stop, consuming=[begin("consumer")], background=[begin("loop")])

    assert begun == []


async def test_consumers_end_before_background_loops_after_a_stop() -> None:
    ended: list[str] = []
    stop = asyncio.Event()

    async def consume() -> None:
        await stop.wait()
        ended.append("consumer")

    async def loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("loop")

    asyncio.get_running_loop().call_later(0.01, stop.set)
    await run_until(stop, consuming=[consume()], background=[loop()])

    assert ended == ["consumer", "loop"]
