"""What trials compute per second: tokens, FLOP/s of each device, and MFU beside its denominator."""

from collections.abc import Sequence
from dataclasses import astuple

from steptime.measurements.json_form import Interval, IntervalOverLaunches
from steptime.measurements.summary_form import TrialSummary
from steptime.report.number_format import UNKNOWN, Shown, percent, scaled
from steptime.report.section import Column, Section, SectionTable, TableRow, cells
from steptime.report.trial_names import Names
from steptime.units import format_bytes

_EXPLANATION = (
    "FLOPs are the model's: 6 for each multiply-accumulate of the forward pass, attention counted, what is computed "
    "again not. MFU is their rate over the products of matrices that a worker's device or cores make at this "
    "precision, measured by steptime peak or promised by the data sheet; without either there is none."
)


def work_section(measured: Sequence[TrialSummary], names: Names) -> Section | None:
    """Return tokens, FLOP/s and MFU of trials; None if neither tokens nor a peak is known."""
    known = [(trial, trial.work) for trial in measured if trial.work]
    if not any(work.peak_source or work.tokens_per_s.value for _, work in known):
        return None
    columns = [Column("tokens/s"), Column("FLOP/s per device"), Column("MFU"), Column("peak", "prose")]
    rows = []
    for trial, work in known:
        rate = work.flop_per_s_per_device
        tokens = tokens_rate(work.tokens_per_s)
        mfu = percent(*astuple(work.mfu))
        peak = flop_rate(work.peak_flop_per_s)
        source = f"{peak.text}, {work.peak_source}" if work.peak_source else UNKNOWN
        shown = (tokens, flop_rate(rate), mfu)
        sentence = f"{names.full(trial)}: {shown[1].line} per device, MFU {mfu.line} of {source}"
        rows.append(TableRow(names.full(trial), [*cells(*shown), *cells(source)], sentence=sentence))
    return Section("Work", [SectionTable(columns, rows, "trial", label="Work")], _EXPLANATION, id="work")


_NEEDED = (
    "Memory of a worker is the most that its process had; of a host, the sum over its workers; of a device, the most "
    "that was in use while steps were timed. Joules are those that the devices' counters gave."
)


def resource_section(measured: Sequence[TrialSummary], names: Names) -> Section | None:
    """Return the memory and the energy that trials needed; None if no launch kept any."""
    known = [(trial, each) for trial in measured if (each := trial.resources) and each.worker_memory_bytes]
    if not known:
        return None
    columns = [Column("of a worker"), Column("of a host"), Column("of a device"), Column("J/sample")]
    rows = []
    for trial, each in known:
        memory = (each.worker_memory_bytes, each.host_memory_bytes, each.device_memory_bytes)
        shown = [UNKNOWN if value is None else format_bytes(value) for value in memory]
        joules = scaled(each.joules_per_sample, "J")
        sentence = f"{names.full(trial)}: {shown[0]} of memory in a worker, {shown[1]} in a host"
        rows.append(TableRow(names.full(trial), cells(*shown, joules), sentence=sentence))
    reasons = dict.fromkeys(each.not_read for _, each in known if each.not_read)
    unknown = f" Not known: {'; '.join(reasons)}." if reasons else ""
    table = SectionTable(columns, rows, "memory at its most", label="Memory and energy")
    return Section("Memory and energy", [table], _NEEDED + unknown, id="resources")


def flop_rate(rate: Interval[float | None] | IntervalOverLaunches[float | None]) -> Shown:
    """``9.61 GFLOP/s (9.50 to 9.72)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "FLOP/s")


def tokens_rate(rate: IntervalOverLaunches[float | None]) -> Shown:
    """``10.4k (9.9 to 10.9)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "")
