"""The charts of steps that were broken down, with the rows of each: numbers are picked, their units changed."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from steptime.measurements.ablation.form import Phase
from steptime.measurements.ablation.gap import Difference, Gap, gap
from steptime.phases import REST
from steptime.report.breakdown import TITLES, BreakdownGroup, BreakdownRow
from steptime.report.charts.chart import Figure, Spec, picture
from steptime.report.charts.gap import gap_chart
from steptime.report.charts.marks import parts
from steptime.report.charts.phases import heat_chart, overlap_chart, phases_chart
from steptime.report.number_format import Shown, seconds, time_unit

MOST_PAIRED = 8
"""Of so many trials of a group, the fastest, any two are compared; 28 pairs."""
MOST_PAIRS, MOST_MAPS = 84, 16
"""Comparisons and heat maps on a page, over all its groups."""
_MOST_CELLS = 480
"""Of a heat map; a page stays small."""
_NOTHING = 1e-9
"""Of a step."""
Pair = tuple[BreakdownRow, BreakdownRow, Gap]


def phase_figures(group: BreakdownGroup) -> list[Figure]:
    """Return the stacked phases of a group's trials, and how much of their communication is covered."""
    figures = []
    factor, unit = _unit(group)
    titles = {name: TITLES[name] for name in group.shown}
    for rows in parts(group.rows):
        bars = [{"name": row.row.name, "shown": row.step.line} for row in rows]
        stages = [stage for row in rows for stage in _stages(row, factor)]
        figures.append(picture("Where the time of a step goes", phases_chart(bars, stages, titles, unit), group.title))
    covered = [spec for row in group.rows if (spec := _overlap(row, factor))]
    return figures + [
        picture("Communication that is covered", overlap_chart(specs, unit), group.title) for specs in parts(covered)
    ]


def heat_figures(group: BreakdownGroup, most: int) -> list[Figure]:
    """Return a map of workers and steps for those ``most`` trials that have the largest imbalance."""
    found = [(row, row.breakdown.imbalance) for row in group.rows if row.breakdown.imbalance]
    found.sort(key=lambda pair: pair[1].factor, reverse=True)
    figures = []
    for row, imbalance in found[:most]:
        steps = max(1, _MOST_CELLS // len(imbalance.workers))
        times = sorted(time for worker in imbalance.workers for time in worker.heat_s[:steps])
        if not times:
            continue
        factor, unit = time_unit(times[0])
        cells = [
            {"name": _worker(worker.rank, worker.host, imbalance.blamed_worker), "step": step, "time": time * factor}
            for worker in imbalance.workers
            for step, time in enumerate(worker.heat_s[:steps])
        ]
        # A few pauses must not make all else look alike: the longest fiftieth has the darkest shade.
        ends = times[0] * factor, times[int(0.98 * (len(times) - 1))] * factor
        figures.append(picture(f"{row.row.name}: {row.blame}", heat_chart(cells, ends, unit), group.title))
    return figures


def gap_figures(group: BreakdownGroup, most: int) -> list[Figure]:
    """Return the gaps between the pairs of ``chosen_pairs``."""
    return [_gap_figure(group, *pair) for pair in chosen_pairs(group, most)]


def chosen_pairs(group: BreakdownGroup, most: int) -> list[Pair]:
    """Return any two of a group's fastest trials and the slower ones against the fastest, the largest gaps first.

    At most ``most`` of them. All other gaps follow from these, each a difference of two.
    """
    rows = group.rows[:MOST_PAIRED]
    pairs = [*combinations(rows, 2), *((group.rows[0], row) for row in group.rows[MOST_PAIRED:])]
    found = [
        (one, other, gap(one.row.trial.id, one.breakdown, other.row.trial.id, other.breakdown)) for one, other in pairs
    ]
    found.sort(key=lambda each: abs(each[2].step_s.value_s), reverse=True)
    return found[:most]


def _gap_figure(group: BreakdownGroup, one: BreakdownRow, other: BreakdownRow, way: Gap) -> Figure:
    factor, unit = _unit(group)
    whole = _signed(way.step_s, (factor, unit))
    label = f"{one.row.name} → {other.row.name}: {whole.text}"
    title = f"From {one.row.name} to {other.row.name}: {whole.line}"
    rows = [_step(one, f"first: {one.row.name}", factor)]
    for name, part in way.parts.items():
        numbers = _numbers(part.value_s, part.low_s, part.high_s, factor)
        kind = "rest" if name == REST else "phase"
        # What neither has is no way from one to the other, nor is what rounding leaves of it.
        if any(abs(each or 0.0) > _NOTHING * abs(one.breakdown.step_s.value_s) * factor for each in numbers.values()):
            rows.append({"name": TITLES[name], "shown": _signed(part, (factor, unit)).line, "kind": kind, **numbers})
    rows.append(_step(other, f"second: {other.row.name}", factor))
    folded = ", ".join(TITLES[name] for name in way.folded)
    note = f"In the rest, because one of both does not know it: {folded}." if folded else ""
    return replace(picture(title, gap_chart(rows, unit), group.title), label=label, note=note)


def _step(row: BreakdownRow, name: str, factor: float) -> Spec:
    return {"name": name, "shown": row.step.line, "kind": "step", **_of(row.breakdown.step_s, factor)}


def _signed(difference: Difference, unit: tuple[float, str]) -> Shown:
    shown = seconds(difference.value_s, difference.low_s, difference.high_s, unit)
    return Shown(shown.text if shown.text.startswith(("-", "0.00 ")) else f"+{shown.text}", shown.interval)


def _stages(row: BreakdownRow, factor: float) -> Iterator[Spec]:
    for name in TITLES:
        phase = row.breakdown.phases.get(name)
        if phase is not None and phase.value_s:
            yield {"name": row.row.name, "phase": name, **_of(phase, factor)}


def _overlap(row: BreakdownRow, factor: float) -> Spec | None:
    found, exposed = row.breakdown.overlap, row.breakdown.phases.get("comm_exposed")
    if found is None or found.ratio is None or exposed is None:
        return None
    hidden = _of(found.comm_hidden_s, factor)
    shown = f"{100 * found.ratio:.3g} % covered"
    bounds = {"covered": hidden["value"], "low": hidden["low"], "high": hidden["high"]}
    return {"name": row.row.name, "shown": shown, **bounds, "exposed": max(0.0, exposed.value_s * factor)}


def _worker(rank: int, host: str, blamed: int | None) -> str:
    return f"worker {rank} ({host}){', to blame' if rank == blamed else ''}"


def _of(phase: Phase, factor: float) -> Spec:
    return _numbers(phase.value_s, phase.low_s, phase.high_s, factor)


def _numbers(value: float, low: float | None, high: float | None, factor: float) -> Spec:
    return {
        "value": value * factor,
        "low": None if low is None else low * factor,
        "high": None if high is None else high * factor,
    }


def _unit(group: BreakdownGroup) -> tuple[float, str]:
    return time_unit(min(row.breakdown.step_s.value_s for row in group.rows))
