"""Models of a profile in the order of what they predict, by workload, and what of that order is certain."""

from collections.abc import Sequence
from dataclasses import astuple

from steptime.document.number_format import Shown, listed, rate, times
from steptime.predict.paired import independent_ratio
from steptime.predict.predict import Prediction
from steptime.results.json_form import Interval
from steptime.units import format_count, is_undecided


def best_first(groups: Sequence[Sequence[Prediction]]) -> list[Sequence[Prediction]]:
    """Return the predictions of models by workload, those of most samples per second with the most workers first."""
    workloads = list(dict.fromkeys(group[0].key.workload for group in groups))
    most = {name: _most_workers([group for group in groups if group[0].key.workload == name]) for name in workloads}

    def place(group: Sequence[Prediction]) -> tuple[int, float]:
        workload = group[0].key.workload
        return workloads.index(workload), -_throughput(group, most[workload])

    return sorted(groups, key=place)


def _most_workers(groups: Sequence[Sequence[Prediction]]) -> int:
    """Return the most workers that are predicted of most models."""
    counts = [each.workers for group in groups for each in group if each.throughput is not None]
    return max(counts, key=lambda workers: (counts.count(workers), workers), default=0)


def _throughput(group: Sequence[Prediction], workers: int) -> float:
    rates = [each.throughput.value for each in group if each.throughput and each.workers == workers]
    return max(rates, default=0.0)


def fastest_models(groups: Sequence[Sequence[Prediction]]) -> list[str]:
    """Return a sentence for each workload that several models predict: which is fastest, and how the others follow."""
    ordered = best_first(groups)
    lines = []
    for workload in dict.fromkeys(group[0].key.workload for group in ordered):
        alike = [group for group in ordered if group[0].key.workload == workload]
        rivals = (_quickest(group, _most_workers(alike)) for group in alike)
        known = [rival for rival in rivals if rival is not None]
        lines += [_fastest(known)] if len(known) > 1 else []
    return lines


def _quickest(group: Sequence[Prediction], workers: int) -> Prediction | None:
    """Return the combination of changes of so many workers with most samples per second; nothing if all are refused."""
    rated = [(each.throughput.value, each) for each in group if each.throughput and each.workers == workers]
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def _fastest(known: Sequence[Prediction]) -> str:
    best, *others = known
    samples = _samples(best)
    labels = {id(each): _label(each, known) for each in known}
    slower = [(labels[id(other)], independent_ratio(best, other)) for other in others]
    tied = [label for label, ratio in slower if ratio.low <= 1.0]
    behind = [f"{label} {_shown(ratio).line}" for label, ratio in slower if ratio.low > 1.0]
    lead = f"{best.key.workload}, {format_count(best.workers, 'worker')}: {labels[id(best)]}"
    first = f"{lead} is predicted fastest{samples and ', '}{samples}"
    if tied:
        first = f"{lead}{samples and f' is predicted {samples}, and'} cannot be distinguished from {listed(tied)}"
    return f"{first}; {', '.join(behind)} its time." if behind else f"{first}."


def _samples(best: Prediction) -> str:
    """Return samples per second; nothing where their interval is too wide for a number."""
    known = best.throughput
    wide = known is None or is_undecided(known.low, known.high)
    return "" if known is None or wide else f"{rate(Interval(*astuple(known))).line} samples/s"


def _label(prediction: Prediction, among: Sequence[Prediction]) -> str:
    """Return framework and strategy; the whole name where two models have the same of both."""
    key = prediction.key
    short = [(each.key.framework, each.key.strategy) for each in among]
    return f"{key.framework} {key.strategy}" if short.count((key.framework, key.strategy)) == 1 else key.name


def _shown(ratio: Interval[float, float]) -> Shown:
    wide = is_undecided(ratio.low, ratio.high)
    return times(ratio.value, None if wide else ratio.low, None if wide else ratio.high)
