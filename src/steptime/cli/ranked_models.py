"""Models of a profile in the order of what they predict, by workload, and what of that order is certain."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from steptime.document.number_format import listed, rate
from steptime.predict.assumptions import STATED, assumed
from steptime.predict.model_names import model_names, workload_names
from steptime.predict.paired import independent_ratio
from steptime.predict.predict import Prediction
from steptime.report.forecasts.answers import is_known, time_shown
from steptime.report.forecasts.decisions import ratio_line
from steptime.results.json_form import Interval
from steptime.units import format_count, is_undecided


def best_first(groups: Sequence[Sequence[Prediction]]) -> list[Sequence[Prediction]]:
    """Return the predictions of models by workload, those of most samples per second with the most workers first.

    Models whose steps are known too badly for a claim follow the others.
    """
    names = workload_names(group[0].key for group in groups)
    workloads = list(dict.fromkeys(names.values()))
    most = {name: _most_workers([group for group in groups if names[group[0].key] == name]) for name in workloads}

    def place(group: Sequence[Prediction]) -> tuple[int, float]:
        workload = names[group[0].key]
        return workloads.index(workload), -_throughput(group, most[workload])

    return sorted(groups, key=place)


def _most_workers(groups: Sequence[Sequence[Prediction]]) -> int:
    """Return the most workers that are predicted of most models."""
    counts = [each.workers for group in groups for each in group if each.throughput is not None]
    return max(counts, key=lambda workers: (counts.count(workers), workers), default=0)


def _throughput(group: Sequence[Prediction], workers: int) -> float:
    rates = [each.throughput.value for each in group if each.throughput and each.workers == workers and is_known(each)]
    return max(rates, default=0.0)


def fastest_models(
    groups: Sequence[Sequence[Prediction]], other_layout: Callable[[Prediction], Prediction | None]
) -> list[str]:
    """Return which model is fastest, and how the others follow, where several models of a workload are predicted.

    A sentence is about one workload, number of workers and combination of changes; changes without effect share one.

    Args:
        groups: the predictions of each model.
        other_layout: returns one of them with another layout of workers on hosts; None if that was stated, or does not
            matter.
    """
    names = workload_names(group[0].key for group in groups)
    rivals: dict[tuple[str, int, str], list[Prediction]] = {}
    for each in (each for group in best_first(groups) for each in group if each.throughput is not None):
        rivals.setdefault((names[each.key], each.workers, each.query.changes()), []).append(each)
    changes: dict[tuple[str, str], list[str]] = {}
    for (workload, *_), known in sorted(rivals.items(), key=lambda item: item[0][:2]):
        if len(known) > 1:
            changes.setdefault(_fastest(workload, known, other_layout), []).append(_unstated_changes(known))
    return [
        f"{', '.join(filter(None, [lead, ' or '.join(filter(None, those))]))}: {answer}"
        for (lead, answer), those in changes.items()
    ]


def _unstated_changes(known: Sequence[Prediction]) -> str:
    """Return the changes that neither a layout nor a link states."""
    over_hosts = all(each.deployment and each.deployment.crosses for each in known)
    return known[0].query.changes(STATED if over_hosts else ())


@dataclass(frozen=True)
class _Order:
    """Models in the order of their samples per second, as far as their intervals support one."""

    leaders: Sequence[Prediction]
    """The fastest, and those that cannot be distinguished from it; empty where no interval supports a rank."""
    slower: Sequence[tuple[Prediction, Interval[float, float]]]
    """With how many times the time of the fastest each takes."""
    unranked: Sequence[Prediction]
    """Those whose interval is too wide for a claim."""


def _order(rivals: Sequence[Prediction]) -> _Order:
    rated = [(each.throughput.value, each) for each in rivals if each.throughput and is_known(each)]
    known = [each for _, each in sorted(rated, key=lambda pair: -pair[0])]
    ratios = [(each, independent_ratio(known[0], each)) for each in known[1:]]
    return _Order(
        known[:1] + [each for each, ratio in ratios if ratio.low <= 1.0],
        [(each, ratio) for each, ratio in ratios if ratio.low > 1.0],
        [each for each in rivals if not is_known(each)],
    )


def _fastest(
    workload: str, rivals: Sequence[Prediction], other_layout: Callable[[Prediction], Prediction | None]
) -> tuple[str, str]:
    """Return what a sentence is about but for the changes, and the sentence."""
    order, names = _order(rivals), _RivalNames(rivals)
    lead = f"{workload}, {names.shared or format_count(rivals[0].workers, 'worker')}"
    unranked = _together([names.whole(model, _wide_step(model)) for model in order.unranked])
    if not order.leaders:
        return lead, f"no interval supports a rank: {unranked}."
    slower = ", ".join(f"{names.whole(model)} {ratio_line(ratio)}" for model, ratio in order.slower)
    clauses = [
        _leading(order, names),
        f"{slower} its time" if slower else "",
        f"not ranked: {unranked}" if unranked else "",
        _elsewhere(order, names, [(model, other_layout(model)) for model in rivals]),
    ]
    return lead, f"{'; '.join(filter(None, clauses))}."


class _RivalNames:
    """How rivals are named: with what they do not share of layouts and links."""

    def __init__(self, rivals: Sequence[Prediction]) -> None:
        self.labels = {model.key: _label(model, rivals) for model in rivals}
        stated = {model.key: assumed([model]).split("; ") for model in rivals}
        first = next(iter(stated.values()))
        shared = [clause for clause in first if all(clause in clauses for clauses in stated.values())]
        self.shared = "; ".join(shared)
        """The layout and link of all of them."""
        self.own = {key: [each for each in clauses if each not in shared] for key, clauses in stated.items()}

    def whole(self, model: Prediction, more: str = "") -> str:
        """Return a model's label with its own layout and link, and ``more`` about it."""
        beside = "; ".join(filter(None, [*self.own[model.key], more]))
        return f"{self.labels[model.key]} ({beside})" if beside else self.labels[model.key]


def _together(names: list[str]) -> str:
    return listed(names) if names else ""


def _wide_step(model: Prediction) -> str:
    return f"step inconclusive, {time_shown(model.step_s).interval}" if model.step_s else ""


def _elsewhere(order: _Order, names: _RivalNames, others: Sequence[tuple[Prediction, Prediction | None]]) -> str:
    """Return which model is fastest with another layout of workers on hosts; empty where the same one is."""
    changed = [other for _, other in others if other is not None]
    elsewhere = _order([other or model for model, other in others])
    if not changed or _keys(elsewhere) == _keys(order):
        return ""
    ahead = _together([names.labels[model.key] for model in elsewhere.leaders])
    tied = " (not distinguished)" if len(elsewhere.leaders) > 1 else ""
    return f"with workers_per_host={changed[0].query.workers_per_host} {f'it is {ahead}{tied}' if ahead else 'none is'}"


def _keys(order: _Order) -> tuple[object, ...]:
    """Return the winners of an order: the fastest, and those that are tied with it."""
    keys = [each.key for each in order.leaders]
    return (*keys[:1], frozenset(keys))


def _leading(order: _Order, names: _RivalNames) -> str:
    """Return the clause of the fastest model and of those that cannot be distinguished from it."""
    doubts = [each.held_out.doubt if each.held_out else "" for each in order.leaders]
    same = doubts[0] if len(doubts) > 1 and len(set(doubts)) == 1 else ""
    leaders = zip(order.leaders, doubts, strict=True)
    best, *tied = (names.whole(model, "" if same else doubt) for model, doubt in leaders)
    samples = _samples(order.leaders[0])
    if tied:
        together = f" (each {same})" if same else ""
        tie = f"cannot be distinguished from {listed(tied)}{together}"
        return f"{best}{samples and f' is predicted {samples}, and'} {tie}"
    if not order.slower:
        return f"{best} alone has an interval that supports a rank{samples and ', '}{samples}"
    return f"{best} is predicted fastest{samples and ', '}{samples}"


def _samples(best: Prediction) -> str:
    """Return samples per second; nothing where their interval is too wide for a number."""
    known = best.throughput
    wide = known is None or is_undecided(known.low, known.high)
    return "" if known is None or wide else f"{rate(Interval(*astuple(known))).line} samples/s"


def _label(prediction: Prediction, among: Sequence[Prediction]) -> str:
    """Return framework and strategy; the whole name where two models have the same of both."""
    key = prediction.key
    short = [(each.key.framework, each.key.strategy) for each in among]
    if short.count((key.framework, key.strategy)) == 1:
        return f"{key.framework} {key.strategy}"
    return model_names(each.key for each in among)[key]
