"""What trials compute per second: tokens, FLOP/s of each device, and MFU beside its denominator."""

from collections.abc import Sequence
from dataclasses import astuple

from steptime.measurements.json_form import Interval, IntervalOverLaunches
from steptime.measurements.summary_form import TrialSummary
from steptime.report.number_format import UNKNOWN, Shown, percent, scaled
from steptime.report.section import Column, Section, SectionTable, TableRow, cells
from steptime.report.trial_names import Names

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


def flop_rate(rate: Interval[float | None] | IntervalOverLaunches[float | None]) -> Shown:
    """``9.61 GFLOP/s (9.50 to 9.72)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "FLOP/s")


def tokens_rate(rate: IntervalOverLaunches[float | None]) -> Shown:
    """``10.4k (9.9 to 10.9)``."""
    return scaled(Interval(rate.value, rate.low, rate.high), "")
