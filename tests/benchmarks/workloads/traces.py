"""Traces and log lines: the CPU of a run without them and with them, in turn."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import structlog
from tests.acceptance.span_collector import open_collector
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale, start_lateness
from tests.benchmarks.workloads.http_calls import listener_port
from tests.benchmarks.workloads.stampede import measure_costs
from tests.fakes.attempts import attempt
from tests.fakes.spans import NEVER, recorded_spans
from tests.fakes.tickets import NINE, ticket

from harebell.contract.target import HttpCall
from harebell.dev.plan import name_of
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.attempts import AttemptSpans
from harebell.executor.targets.client_spans import start_request
from harebell.executor.targets.http_request import request_of
from harebell.messaging import run_log
from harebell.runtime.clock import thread_cpu

RATE: Final = 500  # runs a second, for which two cores have time left
SECONDS: Final = 8
CALLS: Final = 20_000  # of each step, for its mean
SAMPLED: Final = "0.01"
OFF: Final = "off"  # the mode with which the others are compared

Round = Mapping[str, Mapping[str, Any]]  # the figures by the mode


async def traces(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the steps in this process, and then the services in each mode."""
    of_steps = steps()
    report.add("traces steps", **of_steps)
    rounds: list[Round] = []
    with open_collector() as collector:
        sampling = {
            **collector.environment,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": SAMPLED,
        }
        lines = {"HAREBELL_RUN_LOG": "all", "HAREBELL_LOG_LEVEL": "info"}
        modes: Mapping[str, Mapping[str, str]] = {OFF: {}, "1 %": sampling, "all lines": lines}
        for _ in range(scale.times):
            figures = {name: await _sample(rig, settings) for name, settings in modes.items()}
            rounds.append(figures)
            for name, each in figures.items():
                report.add("traces", mode=name, rate=RATE, **each)
    off = of_steps["spans_off_us"] + of_steps["lines_off_us"]
    report.add("traces cost", off_us=round(off, 2), cpu_ratio=cpu_ratios(rounds))


def cpu_ratios(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the CPU time of a run in each mode, divided by that of the mode `off`.

    The speed of the machine corrects each sample, and the modes of one round are compared with
    each other. The ratio is the median of the rounds, so one disturbed sample does not change it.
    """
    of_rounds = [{mode: _cost(each) for mode, each in figures.items()} for figures in rounds]
    modes = [mode for mode in of_rounds[0] if mode != OFF]
    return {
        mode: round(median(costs[mode] / costs[OFF] for costs in of_rounds), 3) for mode in modes
    }


def _cost(figures: Mapping[str, Any]) -> float:
    total: float = figures["cpu_us_per_run"]["total"]
    return total / float(figures["python_ns"])


async def _sample(rig: Rig, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of one wave of HTTP runs by services with these settings."""
    before = dict(rig.settings)
    rig.settings.update(settings)
    rig.stop(*(name_of(kind, number) for kind, number in rig.counts.members()))
    rig.start()
    number = RATE * SECONDS
    try:
        with listener_port(rig) as port:
            target = {"http": {"url": f"http://127.0.0.1:{port}/", "json": {"n": 1}}}
            async with rig.tenant() as tenant:
                wave = await rig.load(tenant, number, rate=RATE, target=target)
                async with measure_costs(rig, wave) as costs:
                    pass
                starts = await rig.started(number)
                return {"late_ms": start_lateness(starts), **costs.figures(number)}
    finally:
        rig.settings = before


def steps() -> dict[str, float]:
    """Return the microseconds of a run for its span, its request and its lines, in each mode."""
    of_run = ticket()
    run = ClaimedRun(ticket=of_run, token=2, attempt=1, lease=15, renewed_at=0)
    request = request_of(HttpCall(url="http://127.0.0.1/"), attempt())
    starter = AttemptSpans()
    data = {"state": "succeeded", "run_id": of_run.run_id, "attempt": 1, "key": None}

    def transitions() -> None:
        run_log.log_start(of_run, 1, run.trace, at=NINE)
        run_log.log_event("default", "run.succeeded", data, attempt=None, runs=1)

    def spans() -> None:
        span = starter.start(run, NINE)
        if span is not None:
            token = span.attach()
            client = start_request(request, run.trace, 0)
            if client is not None:
                client.end()
            span.detach(token)
            span.end()
        else:
            start_request(request, run.trace, 0)

    figures = {"lines_off_us": _mean(transitions), "spans_off_us": _mean(spans)}
    with recorded_spans(NEVER):
        figures["unsampled_us"] = _mean(spans)
    structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=_Sink)
    run_log.use("all")
    try:
        figures["lines_all_us"] = _mean(transitions)
    finally:
        run_log.use("failures")
        structlog.reset_defaults()
    return figures


def _mean(step: Callable[[], None]) -> float:
    step()
    began = thread_cpu()
    for _ in range(CALLS):
        step()
    return round((thread_cpu() - began) / CALLS * 1e6, 2)


class _Sink:
    """A logger that renders each line and writes nothing."""

    def __init__(self, *_: object) -> None:
        """Ignore the name of the logger."""

    def info(self, line: str) -> None:
        """Drop the line."""
