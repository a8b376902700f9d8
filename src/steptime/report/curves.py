"""Scaling: which trials lie on one curve, which curves share a chart, and the section with these charts."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from steptime.analysis.efficiency import ideal_throughput
from steptime.analysis.summary_form import Efficiency, TrialSummary
from steptime.catalog.choices import strategy_named
from steptime.document.charts.chart import Figure, Marks, Spec, parts, picture
from steptime.document.charts.rows import efficiency_lines, throughput_lines
from steptime.document.number_format import drawn_interval
from steptime.document.section import Figures, Section, Sentences
from steptime.report.trial_names import Names, size
from steptime.results.json_form import IntervalOverLaunches
from steptime.study.trial import loader_in_words

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


_ABOUT = (
    "Dashed lines are ideal: the baseline's throughput times the number of workers, and an efficiency of 100 %. "
    "Vertical strokes are intervals; where none is seen, it is smaller than its point, and at the upper edge longer."
)
_NO_CURVES = (
    "No trials differ in their number of workers alone; run the study with several numbers of workers to see how it "
    "scales."
)
_KINDS = {
    True: "Weak scaling: every worker keeps its batch, so more workers learn more per step.",
    False: "Strong scaling: the global batch stays, so more workers have less to do each.",
}


def scaling_section(trials: Sequence[TrialSummary], names: Names, marks: Marks) -> Section:
    """Return the curves of ``trials``, which must all be measured; a page alone shows it."""
    panels = scaling_panels(trials, names)
    if not panels:
        return Section("Scaling", [Sentences([_NO_CURVES])], id="scaling", only="page")
    found = [
        Section(panel.title, [Figures(partial(panel_figures, panel, marks))], _KINDS[panel.weak]) for panel in panels
    ]
    return Section("Scaling", found, _ABOUT, id="scaling", only="page")


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
            data = (
                f"{f'{first.dataset} dataset' if first.dataset else 'synthetic data'}, {loader_in_words(first.loader)}"
            )
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


def panel_figures(panel: Panel, marks: Marks) -> list[Figure]:
    """Return throughput and, where there is a baseline, efficiency against workers."""
    figures = []
    for part in parts(panel.curves):
        throughput = [row for curve in part for row in _throughput_rows(curve)]
        figures.append(picture("Throughput", throughput_lines(throughput, marks), panel.title))
        efficiency = [row for curve in part for row in _efficiency_rows(curve)]
        if panel.weak and efficiency:
            figures.append(picture("Efficiency", efficiency_lines(efficiency, marks), panel.title))
    return figures


def _throughput_rows(curve: Curve) -> Iterator[Spec]:
    for trial in curve.trials:
        yield _point(curve, trial, trial.throughput_samples_per_s)
    for workers, rate in ideal_throughput(curve.trials):
        yield {"name": curve.name, "workers": workers, "value": rate, "ideal": True}


def _efficiency_rows(curve: Curve) -> Iterator[Spec]:
    known = [trial for trial in curve.trials if trial.efficiency.value is not None]
    if len({trial.workers for trial in known}) > 1:  # a baseline alone is 100 % of itself
        for trial in known:
            yield _point(curve, trial, trial.efficiency)
            yield {"name": curve.name, "workers": trial.workers, "value": 1.0, "ideal": True}


def _point(curve: Curve, trial: TrialSummary, value: IntervalOverLaunches[float | None] | Efficiency) -> Spec:
    low, high = drawn_interval(value)
    return {
        "name": curve.name,
        "workers": trial.workers,
        "value": value.value,
        "low": low,
        "high": high,
        "ideal": False,
    }
