"""A collector of spans by OTLP over HTTP, which is also an HTTP target that keeps its headers."""

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACES: Final = "/v1/traces"
FAILURES: Final = "/fail-"  # `/acme/fail-2` responds 503 twice, and then 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedSpan:
    """A span as its service exported it. The ids are hexadecimal."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    links: list[tuple[str, str]]  # trace id and span id
    attributes: dict[str, Any]
    is_error: bool


@dataclass(slots=True)
class SpanCollector:
    """The spans of all services, and the headers of each call of a target."""

    port: int = 0
    spans: list[CollectedSpan] = field(default_factory=list)
    calls: dict[str, list[dict[str, str]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a service exports its spans soon."""
        return {
            "HAREBELL_OTEL": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",  # milliseconds
            "NO_PROXY": "127.0.0.1",
        }

    def of_run(self, run_id: str, name: str = "process run") -> list[CollectedSpan]:
        """Return the spans of the attempts of a run, in their order."""
        spans = [each for each in self.spans if each.name == name]
        found = [each for each in spans if each.attributes.get("harebell.run.id") == run_id]
        return sorted(
            found,
            key=lambda each: (
                each.attributes["harebell.run.replay_number"],
                each.attributes["harebell.run.attempt"],
            ),
        )

    def children(self, parent_id: str) -> list[CollectedSpan]:
        return [each for each in self.spans if each.parent_id == parent_id]

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Store a request and return the status of its response."""
        if path == TRACES:
            self._export(gzip.decompress(body) if headers.get("content-encoding") else body)
            return 200
        self.calls[path].append(headers)
        _, is_failing, failures = path.rpartition(FAILURES)
        return 503 if is_failing and len(self.calls[path]) <= int(failures) else 200

    def _export(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            resource = {each.key: each.value.string_value for each in group.resource.attributes}
            for scope in group.scope_spans:
                self.spans += [_span(resource["service.name"], span) for span in scope.spans]


def _span(service: str, span: Any) -> CollectedSpan:
    return CollectedSpan(
        service=service,
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        attributes={
            each.key: getattr(each.value, str(each.value.WhichOneof("value")))
            for each in span.attributes
        },
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
    )


@contextmanager
def open_collector() -> Iterator[SpanCollector]:
    """Run a collector on a free port."""
    collector = SpanCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(collector.receive(self.path, headers, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
