"""The HTTP endpoints `/livez`, `/readyz` and `/metrics` of a service."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from harebell.runtime import metrics as runtime_metrics
from harebell.runtime import spans

METRICS_CONTENT_TYPE = "text/plain"
OPENMETRICS = "application/openmetrics-text"


class Health:
    """The readiness checks and the warnings of a service. The service is live while it responds."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], bool]] = {}
        self._warnings: dict[str, Callable[[], str | None]] = {}
        self._reasons: dict[str, Callable[[], str | None]] = {}

    def check(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Add a check to `/readyz` and to the metric harebell_ready."""
        self._checks[name] = is_ready
        runtime_metrics.READY.labels(name).set_function(lambda: float(is_ready()))

    def warn(self, name: str, warning: Callable[[], str | None]) -> None:
        """Add a warning to `/readyz`, which a ready service shows as long as it is not None."""
        self._warnings[name] = warning

    def explain(self, name: str, reason: Callable[[], str | None]) -> None:
        """Add the reason of a fault to the check of that name.

        `/readyz` shows the reason, unless it is None: also before the first check, and as a
        warning while the check passes.
        """
        self._reasons[name] = reason

    async def live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, _: web.Request) -> web.Response:
        """Respond 200 if every check passes. Before the first check the service is starting."""
        results = {name: is_ready() for name, is_ready in self._checks.items()}
        status = 200 if results and all(results.values()) else 503
        faults = {name: fault for name, reason in self._reasons.items() if (fault := reason())}
        lines = [_line(name, faults.get(name), passed=passed) for name, passed in results.items()]
        if not results:
            lines = ["starting\n", *(_line(*each, passed=False) for each in faults.items())]
        warnings = {name: fault for name, fault in faults.items() if results.get(name)}
        warnings |= {name: text for name, warning in self._warnings.items() if (text := warning())}
        lines += [f"[!] {name}: {text}\n" for name, text in warnings.items()]
        return web.Response(status=status, text="".join(lines))

    async def metrics(self, request: web.Request) -> web.Response:
        """Respond with the metrics, and with exemplars if the process traces and the reader can.

        Only the format of OpenMetrics has exemplars, and it costs more than the text format.
        """
        if spans.current() is not None and OPENMETRICS in request.headers.get("Accept", ""):
            return web.Response(
                body=openmetrics.generate_latest(REGISTRY),  # type: ignore[no-untyped-call]  # its package
                headers={"Content-Type": openmetrics.CONTENT_TYPE_LATEST},
            )
        return web.Response(body=generate_latest(), headers={"Content-Type": METRICS_CONTENT_TYPE})


def _line(name: str, fault: str | None, *, passed: bool) -> str:
    """Return the line of a check. The fault of a passed check is a warning on a separate line."""
    if passed:
        return f"[+] {name}\n"
    return f"[-] {name}: {fault}\n" if fault else f"[-] {name}\n"


@asynccontextmanager
async def serve_health(health: Health, host: str, port: int) -> AsyncIterator[None]:
    """Serve the endpoints within the context."""
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
