"""A run for OpenTelemetry: metrics with the times of the run, and a span whose events are the findings."""

import logging
import os
from typing import TYPE_CHECKING

from steptime.errors import StoreError
from steptime.exports.trackers.tracked_run import TrackedRun, TrackedValue

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

_ENDPOINT = "http://localhost:4318"
_WAIT_S = 10.0


def write_otel(run: TrackedRun, target: str | None) -> str:
    """Send a run by OTLP over HTTP; return where to. Raises StoreError where it was not taken.

    A reader of the SDK would stamp all with the time of the export and repeat gauges; here each value is sent once.

    Args:
        run: what is sent.
        target: the address of a collector; None: that of OTEL_EXPORTER_OTLP_ENDPOINT, else localhost.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExportResult

    base = (target or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", _ENDPOINT)).rstrip("/")
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a failure is said once, by the caller
    about = {f"steptime.{name}": value for name, value in run.about.items()}
    resource = Resource.create(
        {"service.name": "steptime", "steptime.run": run.name, "steptime.page": run.page, **about}
    )
    metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=_WAIT_S)
    spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=_WAIT_S)
    taken = metrics.export(_metrics(run, resource)) is MetricExportResult.SUCCESS
    taken = taken and spans.export([_span(run, resource)]) is SpanExportResult.SUCCESS
    if not taken:
        message = f"{base} did not take it; is a collector there?"
        raise StoreError(message)
    return base


def _metrics(run: TrackedRun, resource: "Resource") -> "MetricsData":
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    begin, end = _nanoseconds(run.begin_s), _nanoseconds(run.end_s)
    steps = [
        NumberDataPoint({"steptime.rank": counted.rank}, begin, end, sum(counted.counts)) for counted in run.counted
    ]
    lengths = [
        HistogramDataPoint(
            attributes={"steptime.rank": counted.rank},
            start_time_unix_nano=begin,
            time_unix_nano=end,
            count=sum(counted.counts),
            sum=counted.sum_s,
            bucket_counts=counted.counts,
            explicit_bounds=counted.bounds_s,
            min=None,
            max=None,
        )
        for counted in run.counted
    ]
    times, numbers = (
        [NumberDataPoint(_attributes(value), begin, _nanoseconds(value.at_s), number) for value, number in pairs]
        for pairs in (
            [(value, value.seconds) for value in run.values],
            [(value, value.step) for value in run.values],
        )
    )
    whole = AggregationTemporality.CUMULATIVE
    metrics = [
        Metric("steptime.steps", "Steps that were counted", "{step}", Sum(steps, whole, is_monotonic=True)),
        Metric("steptime.step.duration", "Steps by length", "s", Histogram(lengths, whole)),
        Metric("steptime.time", "A step or a part of it, in a window or the run", "s", Gauge(times)),
        Metric(
            "steptime.step.number",
            "The last step that a time holds; of the longest that step",
            "{step}",
            Gauge(numbers),
        ),
    ]
    scope = ScopeMetrics(InstrumentationScope("steptime"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _attributes(value: TrackedValue) -> dict[str, str | int]:
    about: dict[str, str | int] = {"steptime.scope": value.scope, "steptime.statistic": value.statistic}
    about |= {"steptime.part": value.part} if value.part is not None else {}
    return about | ({"steptime.rank": value.rank} if value.rank is not None else {})


def _span(run: TrackedRun, resource: "Resource") -> "ReadableSpan":
    from opentelemetry.sdk.trace import TracerProvider

    # Its own provider: the one of the process stays as it is.
    span = (
        TracerProvider(resource=resource, shutdown_on_exit=False)
        .get_tracer("steptime")
        .start_span(run.name, start_time=_nanoseconds(run.begin_s))
    )
    for finding in run.findings:
        about: dict[str, str | float] = {"steptime.finding": finding.sentence}
        about |= {"steptime.lost_s": finding.lost_s} if finding.lost_s is not None else {}
        span.add_event(finding.kind, about, timestamp=_nanoseconds(run.end_s))
    span.end(_nanoseconds(run.end_s))
    return span


def _nanoseconds(seconds: float) -> int:
    return round(1e9 * seconds)
