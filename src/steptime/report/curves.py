"""Which trials lie on one scaling curve, and which curves share a chart."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from steptime.measurements.summary_form import TrialSummary
from steptime.report.trial_names import Names, size
from steptime.study.strategies import strategy_named

_SAME = ("workload", "input_shape", "dataset", "loader", "precision", "device")


@dataclass(frozen=True)
class Curve:
    """Trials that differ in their workers, fewest first; the first may be the baseline of another strategy."""

    name: str
    framework: str
    trials: list[TrialSummary]


@dataclass(frozen=True)
class Panel:
    """Curves under the same conditions."""

    title: str
    weak: bool
    """Whether the batch per worker stays (weak scaling); otherwise the global batch does (strong scaling)."""
    curves: list[Curve]


def scaling_panels(trials: Sequence[TrialSummary], names: Names) -> list[Panel]:
    """Return the panels that have at least two numbers of workers; ``trials`` must all be measured."""
    weak = list(_panels(trials, names, weak=True))
    shown = {trial.id for panel in weak for curve in panel.curves for trial in curve.trials}
    rest = [trial for trial in trials if trial.id not in shown]
    return weak + list(_panels(rest, names, weak=False))


def _panels(trials: Sequence[TrialSummary], names: Names, *, weak: bool) -> Iterator[Panel]:
    def batch(trial: TrialSummary) -> int:
        return trial.batch_per_worker if weak else trial.batch_per_worker * trial.workers

    for members in _grouped(trials, lambda trial: (*(str(getattr(trial, field)) for field in _SAME), batch(trial))):
        if len({trial.workers for trial in members}) > 1:
            first = members[0]
            kept = f"batch {batch(first)} per worker" if weak else f"global batch {batch(first)}"
            data = f"{first.dataset or 'synthetic data'} by the {first.loader} loader"
            title = f"{first.workload} ({size(first.input_shape)}), {data}, {kept}, {first.precision}, {first.device}"
            yield Panel(title, weak, list(_curves(members, names, weak=weak)))


def _curves(trials: Sequence[TrialSummary], names: Names, *, weak: bool) -> Iterator[Curve]:
    curves = []
    joined = set()
    for members in _grouped(trials, names.short):
        own = sorted(members, key=lambda trial: trial.workers)
        beginning = _beginning(own, trials, weak=weak)
        if beginning:
            joined.add(beginning.id)
            own.insert(0, beginning)
        curves.append(Curve(names.short(members[0]), members[0].framework, own))
    for curve in curves:
        # What only begins other curves needs none of its own.
        if not all(trial.id in joined for trial in curve.trials):
            yield curve


def _beginning(own: Sequence[TrialSummary], trials: Sequence[TrialSummary], *, weak: bool) -> TrialSummary | None:
    """Return the trial of another strategy that a curve begins at; None if it begins at its own."""
    named = {(each.efficiency.baseline_workers, each.efficiency.baseline_strategy) for each in own}
    for other in trials:
        same = (other.framework, other.threads) == (own[0].framework, own[0].threads)
        same = same and own[0].tuning in {other.tuning, *other.tiers}
        if same and other.workers < own[0].workers:
            # Efficiency compares equal batches per worker, so in strong scaling it names no beginning.
            begins = (
                (other.workers, other.strategy) in named if weak else strategy_named(other.strategy).single_baseline
            )
            if begins:
                return other
    return None


def _grouped(trials: Sequence[TrialSummary], key: Callable[[TrialSummary], Hashable]) -> Iterator[list[TrialSummary]]:
    groups: dict[Hashable, list[TrialSummary]] = {}
    for trial in trials:
        groups.setdefault(key(trial), []).append(trial)
    yield from groups.values()
