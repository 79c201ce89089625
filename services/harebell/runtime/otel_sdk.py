"""The start of the SDK of OpenTelemetry, which reads its own standard variables (`OTEL_*`)."""

from collections.abc import Iterator
from contextlib import contextmanager

from harebell.contract import __version__
from harebell.runtime import spans

SETTING = "HAREBELL_OTEL"


@contextmanager
def traced_process(service: str, instance: str, *, enabled: bool) -> Iterator[None]:
    """Trace this process within the context, and export the remaining spans at its end.

    `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*` and the other standard
    variables apply. The queue of spans is bounded by `OTEL_BSP_MAX_QUEUE_SIZE`, and a collector
    that does not answer loses spans but delays no run.
    Raise `InvalidInput` without the packages of OpenTelemetry.
    """
    if not enabled:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415  # optional
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import (  # noqa: PLC0415  # an optional package
            OTELResourceDetector,
            Resource,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # an optional package
        from opentelemetry.sdk.trace.export import (  # noqa: PLC0415  # an optional package
            BatchSpanProcessor,
        )
    except ImportError:
        raise spans.missing_extra(SETTING) from None
    own = Resource(
        {
            "service.namespace": "harebell",
            "service.name": f"harebell-{service}",
            "service.instance.id": instance,
            "service.version": __version__,
        }
    )
    # The variables of the operator replace the values of Harebell.
    resource = Resource.create().merge(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    spans.use(spans.Tracing(provider.get_tracer("harebell", __version__)))
    try:
        yield
    finally:
        spans.use(None)
        provider.shutdown()
