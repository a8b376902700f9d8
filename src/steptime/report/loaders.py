"""The loader verdict: who limits, from where on, and the cheapest change that lifts a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from steptime.analysis.loader_form import LoaderChange, LoaderRow, LoaderVerdict
from steptime.analysis.summary_form import Summary
from steptime.document.number_format import UNKNOWN, count, number, percent, predicted_gain, seconds, times
from steptime.document.section import Section, Sentences, text_table
from steptime.results.json_form import Interval

EXPLANATION = (
    "Alone: batches taken from the loader without training, in the first epoch and in later ones. Together: the timed "
    "launches. Predicted: training alone plus loading where no batch is made ahead, else the slowest of loader, "
    "training and the worker's cores. Samples per CPU-second count the worker and its helpers."
)
COLUMNS = (
    "loader",
    "alone, first epoch",
    "later epochs",
    "per CPU-second",
    "memory + helpers",
    "together",
    "step",
    "predicted",
)
_MIB = 2**20


@dataclass(frozen=True)
class LoaderTable:
    """The loaders of one configuration, one row each, and the sentences of its verdict."""

    title: str
    rows: list[tuple[str, ...]]
    """One text per column of ``COLUMNS``."""
    sentences: list[str]


def loader_section(summary: Summary) -> Section | None:
    """Return who limits, loader or training, in every configuration that has a verdict; None if there is none."""
    tables = loader_tables(summary)
    groups = [
        Section(table.title, [text_table(COLUMNS, table.rows, f"Loaders: {table.title}"), Sentences(table.sentences)])
        for table in tables
    ]
    title = "Loader or training: who limits"
    return Section(title, groups, EXPLANATION, id="loaders") if groups else None


def loader_tables(summary: Summary) -> list[LoaderTable]:
    """Return a table for every configuration that has a loader verdict, in the order of the summary."""
    return [
        LoaderTable(each.title, [_row(row, each) for row in each.rows], _sentences(each)) for each in summary.loaders
    ]


def _row(row: LoaderRow, verdict: LoaderVerdict) -> tuple[str, ...]:
    memory = f"{row.alone.memory_bytes / _MIB:.0f} + {row.alone.helpers_memory_bytes / _MIB:.0f} MiB"
    return (
        _name(row, verdict.rows),
        f"{_shown(row.alone.first_epoch_samples_per_s)}/s",
        f"{_shown(row.alone.later_epochs_samples_per_s)}/s" if row.alone.later_epochs_samples_per_s else UNKNOWN,
        _shown(row.alone.samples_per_cpu_s),
        memory,
        f"{_shown(row.together_samples_per_s)}/s" if row.together_samples_per_s else UNKNOWN,
        _time(row.step_s),
        _time(row.predicted_step_s),
    )


def _name(row: LoaderRow | LoaderChange, rows: Sequence[LoaderRow]) -> str:
    helpers = f" with {count(row.processes, 'helper')}" if row.processes else ""
    data = f" on {row.dataset}" if len({each.dataset for each in rows} | {row.dataset}) > 1 else ""
    return f"{row.loader}{helpers}{data}"


def _shown(value: Interval | None) -> str:
    if value is None:
        return UNKNOWN
    if value.low is None or value.high is None:
        return f"{number(value.value)} (no interval)"
    return f"{number(value.value)} ({number(value.low)} to {number(value.high)})"


def _time(value: Interval | None) -> str:
    return seconds(value.value, value.low, value.high).line if value else UNKNOWN


def _sentences(verdict: LoaderVerdict) -> list[str]:
    found = [_limit(row, verdict) for row in verdict.rows]
    found += [_threshold(row, verdict) for row in verdict.rows[:1]]
    if verdict.changes:
        found.append(_advice(verdict))
        found += [_change(each, verdict) for each in verdict.changes]
    return [*found, _cache(verdict.rows)]


def _limit(row: LoaderRow, verdict: LoaderVerdict) -> str:
    ratio = row.loading_over_training
    shown = times(ratio.value, ratio.low, ratio.high).line
    who = {
        "loader": f"the loader limits: a batch takes {shown} as long as a step of the training alone",
        "training": f"the training limits: a batch takes {shown} as long as a step of the training alone",
        "undecided": f"neither is shown to limit: a batch takes {shown} as long as a step of the training alone",
    }[row.limit]
    waited = row.waited_share
    if waited is None:
        return f"{_name(row, verdict.rows)}: {who}."
    share = percent(waited.value, waited.low, waited.high)
    return f"{_name(row, verdict.rows)}: {who}; {share.line} of the measured step is not training."


def _threshold(row: LoaderRow, verdict: LoaderVerdict) -> str:
    speed = row.device_samples_per_s
    faster = 1.0 / row.loading_over_training.value
    device = (
        f"{_name(row, verdict.rows)}: predicted to limit any device that trains more than {_shown(speed)} samples/s"
    )
    device += f", {number(faster)} times as many as here" if faster > 1.0 else ", which this one does already"
    hosts = row.workers_per_host
    if hosts is None:
        return f"{device}."
    workers = max(1, ceil(hosts.value))
    return f"{device}; this host's processors are busy from {count(workers, 'worker')} on ({_shown(hosts)})."


def _advice(verdict: LoaderVerdict) -> str:
    if verdict.cheapest is None:
        return "No change here is predicted to lift the limit; the gains predicted and measured are:"
    change = verdict.changes[verdict.cheapest]
    gain = change.predicted_gain
    return (
        f"The cheapest change that lifts the limit: {_name(change, verdict.rows)}, "
        f"{predicted_gain(gain.value, gain.low, gain.high)}. All changes, cheapest first:"
    )


def _change(change: LoaderChange, verdict: LoaderVerdict) -> str:
    predicted, measured = change.predicted_gain, change.measured_gain
    text = f"{_name(change, verdict.rows)}: {predicted_gain(predicted.value, predicted.low, predicted.high)}"
    if measured is None:
        return f"{text}, not measured"
    return f"{text}, measured {times(measured.value, measured.low, measured.high).line}"


def _cache(rows: Sequence[LoaderRow]) -> str:
    dropped = [row.alone.page_cache_dropped for row in rows]
    if all(dropped):
        return "Cold: the dataset's files had left the page cache before every launch of a loader alone."
    if None in dropped:
        return "Whether the first epochs were cold is not known: a host does not say what its page cache holds."
    return (
        "Not cold: the system kept some of the dataset's files in its page cache, so that first epochs may be as warm "
        "as later ones."
    )
