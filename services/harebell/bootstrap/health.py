"""`/livez`, `/readyz`, `/metrics` on a port of the service's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import generate_latest

from harebell.runtime import metrics as runtime_metrics

PLAIN = "text/plain"


class Health:
    """Live while it answers; ready while every check says so."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], bool]] = {}

    def check(self, name: str, is_well: Callable[[], bool]) -> None:
        """On `/readyz`, and as a metric of the same name and state."""
        self._checks[name] = is_well
        runtime_metrics.READY.labels(name).set_function(lambda: float(is_well()))

    async def live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, _: web.Request) -> web.Response:
        """Empty of checks it is still starting."""
        told = {name: is_well() for name, is_well in self._checks.items()}
        status = 200 if told and all(told.values()) else 503
        lines = [f"[{'+' if well else '-'}] {name}\n" for name, well in told.items()]
        return web.Response(status=status, text="".join(lines) or "starting\n")

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": PLAIN})


@asynccontextmanager
async def serve_health(health: Health, host: str, port: int) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes(
        [
            web.get("/livez", health.live),
            web.get("/readyz", health.ready),
            web.get("/healthz", health.live),
            web.get("/metrics", health.metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
