"""Tests of the start of tracing, with and without the packages of OpenTelemetry."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""
RUN = """
from harebell.bootstrap.process import run_service
from harebell.client.trace import trace_headers
from harebell.runtime import spans
from harebell.runtime.settings import ExecutorSettings
import harebell.executor.service, harebell.ticker.service, harebell.intake.service

async def serve(settings, stop):
    loaded = any(name.startswith("opentelemetry") for name in sys.modules)
    print(f"traces: {spans.current() is not None}, loaded: {loaded}, {trace_headers()}")

run_service(ExecutorSettings, "executor", serve, environ={
    "HAREBELL_AMQP_URL": "amqp://broker.example",
    "HAREBELL_DATABASE_URL": "postgresql://database.example/harebell",
    "HAREBELL_OTEL": "%s",
})
"""


@pytest.mark.parametrize(
    ("blocker", "otel", "code", "output"),
    [
        (BLOCKED, "false", 0, "traces: False, loaded: False, {}"),
        ("import sys", "false", 0, "traces: False, loaded: False, {}"),
        ("import sys", "true", 0, "traces: True, loaded: True, {}"),
        (BLOCKED, "true", 2, ""),
    ],
)
def test_service_needs_the_packages_only_for_its_setting(
    blocker: str, otel: str, code: int, output: str
) -> None:
    completed = subprocess.run(  # noqa: S603  # the command is a constant
        [sys.executable, "-c", blocker + RUN % otel],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    )

    assert (completed.returncode, completed.stdout.strip()) == (code, output), completed.stderr
    if code:
        assert completed.stderr.startswith("HAREBELL_OTEL: The setting needs the packages")
