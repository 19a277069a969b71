"""Sends spans to a collector of OpenTelemetry, over HTTP."""

from collections.abc import Iterable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from artangram.core.errors import BadInput
from artangram.observe.spans import Span

MOST_SPANS = 500
"""Of one request."""
NS = 1e9


def send(spans: Iterable[Span], exporter: SpanExporter, *, service: str) -> int:
    """Send `spans`; returns how many. Raises `BadInput` if the collector does not take them."""
    resource = Resource.create({"service.name": service})
    waiting: list[ReadableSpan] = []
    count = 0
    for span in spans:
        waiting.append(_readable(span, resource))
        count += 1
        if len(waiting) == MOST_SPANS:
            _export(exporter, waiting)
            waiting = []
    if waiting:
        _export(exporter, waiting)
    return count


def over_http(endpoint: str) -> SpanExporter:
    """Sends to the address of a collector, as in `http://127.0.0.1:4318/v1/traces`."""
    return OTLPSpanExporter(endpoint=endpoint)


def _export(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> None:
    if exporter.export(spans) is not SpanExportResult.SUCCESS:
        fix = "check its address and that it takes OTLP over HTTP"
        raise BadInput("endpoint", "the collector does not take the spans", fix)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    context = _context(span.trace_id, span.span_id)
    parent = None if span.parent_id is None else _context(span.trace_id, span.parent_id)
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[Event(name, timestamp=_ns(at)) for name, at in span.moments],
        kind=SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope("artangram"),
        status=Status(StatusCode.ERROR, span.fault) if span.fault else Status(StatusCode.OK),
        start_time=_ns(span.begin),
        end_time=_ns(span.end),
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)


def _ns(at: float) -> int:
    return int(at * NS)
