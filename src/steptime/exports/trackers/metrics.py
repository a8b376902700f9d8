"""A run in metrics: sent to a collector of OpenTelemetry with a span whose events are findings; text for Prometheus."""

import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.errors import StoreError
from steptime.exports.trackers.tracked_run import WHOLE, TrackedRun, TrackedValue, full_address, plain_name
from steptime.user_output import METRICS, write_user_file

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

_ENDPOINT = "http://localhost:4318"
_WAIT_S = 10.0
FILE = "metrics.prom"
_JOB = "steptime"


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

    base = full_address(target or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", _ENDPOINT)).rstrip("/")
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


class _Families:
    """What a registry of prometheus_client collects."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        run = self._run
        own = [run.name]
        lengths = HistogramMetricFamily("steptime_step_seconds", "Steps by length", labels=["run", "rank"])
        steps = CounterMetricFamily("steptime_steps", "Steps that were counted", labels=["run", "rank"])
        for counted in run.counted:
            bounds = [*map(floatToGoString, counted.bounds_s), "+Inf"]
            buckets = list(zip(bounds, itertools.accumulate(counted.counts), strict=True))
            lengths.add_metric([*own, str(counted.rank)], buckets, counted.sum_s)
            steps.add_metric([*own, str(counted.rank)], sum(counted.counts))
        whole = GaugeMetricFamily(
            "steptime_run_step_seconds", "A step: its mean with the interval, quantiles", labels=["run", "statistic"]
        )
        parts = GaugeMetricFamily(
            "steptime_run_part_seconds",
            "A part of a step, its mean with the interval",
            labels=["run", "part", "statistic"],
        )
        ranks = GaugeMetricFamily(
            "steptime_run_rank_part_seconds", "A part of a step of one rank", labels=["run", "part", "rank"]
        )
        for value in run.values:
            if value.scope != WHOLE:
                continue
            if value.part is None:
                whole.add_metric([*own, value.statistic], value.seconds)
            elif value.rank is None:
                parts.add_metric([*own, value.part, value.statistic], value.seconds)
            else:
                ranks.add_metric([*own, value.part, str(value.rank)], value.seconds)
        lost = GaugeMetricFamily(
            "steptime_finding_lost_seconds", "Time that a finding costs the job", labels=["run", "kind", "sentence"]
        )
        findings = GaugeMetricFamily("steptime_finding_info", "What was found", labels=["run", "kind", "sentence"])
        for finding in run.findings:
            findings.add_metric([*own, finding.kind, finding.sentence], 1)
            if finding.lost_s is not None:
                lost.add_metric([*own, finding.kind, finding.sentence], finding.lost_s)
        about = GaugeMetricFamily("steptime_run_info", "The run", labels=["run", "page", *run.about])
        about.add_metric([*own, run.page, *run.about.values()], 1)
        yield from (about, steps, lengths, whole, parts, ranks, findings, lost)


def write_prometheus(run: TrackedRun, target: str | None, folder: Path) -> str:
    """Write a run for Prometheus; return where it is.

    Args:
        run: what is written.
        target: a file, the folder that node_exporter's textfile collector reads, or the address of a Pushgateway; None:
            ``metrics.prom`` in the results folder.
        folder: of results.
    """
    from prometheus_client import CollectorRegistry, generate_latest, push_to_gateway

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(run))
    if target and (address := full_address(target)).startswith(("http://", "https://")):
        push_to_gateway(address, job=_JOB, registry=registry, grouping_key={"run": run.name}, timeout=_WAIT_S)
        return address
    place = Path(target) if target else folder / FILE
    if place.is_dir():
        place /= f"steptime-{plain_name(run.name)}.prom"
    write_user_file(place, generate_latest(registry), METRICS)
    return str(place)
