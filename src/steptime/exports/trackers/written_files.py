"""A run as files: text for Prometheus (a textfile collector, a web server or a Pushgateway), events of TensorBoard."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steptime.exports.trackers.tracked_run import WHOLE, TrackedRun, plain_name
from steptime.plain_file import PlainFolder

FILE = "metrics.prom"
_JOB = "steptime"
_WAIT_S = 20.0


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
        target: a file or the address of a Pushgateway; None: ``metrics.prom`` in the results folder.
        folder: of results.
    """
    from prometheus_client import CollectorRegistry, generate_latest, push_to_gateway

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(run))
    if target and target.startswith(("http://", "https://")):
        push_to_gateway(target, job=_JOB, registry=registry, grouping_key={"run": run.name}, timeout=_WAIT_S)
        return target
    place = Path(target) if target else folder / FILE
    PlainFolder(place.parent).put(place, generate_latest(registry))
    return str(place)


def write_tensorboard(run: TrackedRun, target: str | None, folder: Path) -> str:
    """Write a run for TensorBoard; return what to show.

    Args:
        run: what is written.
        target: a folder of runs; None: ``tensorboard`` in the results folder.
        folder: of results.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    place = (Path(target) if target else folder / "tensorboard") / f"steptime-{plain_name(run.name)}"
    place.mkdir(parents=True, exist_ok=True)
    first = min((value.step for value in run.values), default=0)
    events = [
        Event(wall_time=run.begin_s, file_version="brain.Event:2"),
        # What an earlier export of this run wrote is put aside, as purge_step does: TensorBoard reads files by name.
        Event(wall_time=run.begin_s, step=first, session_log=SessionLog(status=SessionLog.START)),
        *(
            Event(wall_time=value.at_s, step=value.step, summary=scalar_pb(value.name, value.seconds))
            for value in run.values
        ),
        Event(wall_time=run.end_s, step=first, summary=text_pb("steptime/findings", run.text)),
    ]
    with (place / f"events.out.tfevents.{time.time_ns()}.steptime").open("xb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())
    return f"tensorboard --logdir {place.parent}"
