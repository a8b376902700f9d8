"""What predictions answer to a decision: which model is fastest, what more workers or another link bring, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from steptime.document.number_format import Shown, listed, percent, rate, times
from steptime.document.section import Cell, Column, Part, Section, SectionTable, TableRow
from steptime.report.predicted_answers import changes_of, is_known
from steptime.results.json_form import Interval
from steptime.units import format_count, is_undecided

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.paired import PairedRatio
    from steptime.predict.predict import Prediction
    from steptime.predict.sensitivity import Sensitivity

_LITTLE = 0.005
"""Of a step, below which a part of it is not named."""
_NOT_MOVED = 0.01
"""Change of a step that is called none."""
_MOST_PAIRS = 3
_LEVELS = (0.05, 0.5, 0.95)
_PARTS = {"communication": "communication that nothing hides", "waiting": "waiting for other workers"}


def _line(ratio: Interval[float, float]) -> str:
    return times(*astuple(ratio)).line


def pair_sentence(pair: "PairedRatio") -> str:
    """Return ``8 workers take 0.54x (0.50 to 0.63) the time of 4, for 1.08x (0.99 to 1.26) the worker hours``."""
    fewer, more = pair.baseline.workers, pair.other.workers
    unclear = pair.time.low <= 1.0 <= pair.time.high
    doubt = " (no difference shown)" if unclear else ""
    if pair.baseline.query.texts == pair.other.query.texts:
        changed = f"With {changes_of(pair.other)}, " if pair.other.query.texts else ""
        lead = f"{changed}{format_count(more, 'worker')} take {_line(pair.time)} the time of {fewer}"
        return f"{lead}{doubt}, for {_line(pair.worker_time)} the worker hours."
    ends = f"{changes_of(pair.other)} takes {_line(pair.time)} the time of {changes_of(pair.baseline)}"
    return f"With {format_count(more, 'worker')}, {ends}{doubt}."


def pair_answers(pairs: "Sequence[PairedRatio]") -> list[str]:
    """Return of each combination of changes what the most workers bring, and what each brings over the first."""
    last: dict[str, PairedRatio] = {}
    for pair in pairs:
        if pair.baseline.query.texts == pair.other.query.texts:
            last[changes_of(pair.other)] = pair
    across = [pair for pair in pairs if pair.baseline.query.texts != pair.other.query.texts]
    return [pair_sentence(pair) for pair in [*across[:_MOST_PAIRS], *[*last.values()][:_MOST_PAIRS]]]


def pair_parts(pairs: "Sequence[PairedRatio]") -> Iterator[Part]:
    """Yield a table of all ratios where the answer has not all of them."""
    if len(pairs) <= len(pair_answers(pairs)):
        return
    rows = [
        TableRow(_pair_name(pair), [Cell(*times(*astuple(pair.time))), Cell(*times(*astuple(pair.worker_time)))])
        for pair in pairs
    ]
    about = "For the same samples; narrower than both intervals suggest, since one model predicts both."
    columns = [Column("time"), Column("worker hours")]
    table = SectionTable(columns, rows, "over", ("wide", "stacked", "split"), label="Compared")
    yield Section("Compared", [table], about, folded=True)


def _pair_name(pair: "PairedRatio") -> str:
    ends = [", ".join(filter(None, [changes_of(side), str(side.workers)])) for side in (pair.other, pair.baseline)]
    return " over ".join(ends)


def parts_of_step(group: "Sequence[Prediction]") -> Iterator[str]:
    """Yield what the step of the most workers is made of, for each combination of changes."""
    farthest = {changes_of(each): each for each in sorted(group, key=lambda each: each.workers) if is_known(each)}
    for changed, prediction in [*farthest.items()][:_MOST_PAIRS]:
        shares = sorted(prediction.made_of.items(), key=lambda item: -item[1].value)
        named = [
            f"{_PARTS.get(part, part)} {percent(*astuple(share)).line}"
            for part, share in shares
            if share.value > _LITTLE
        ]
        lead = f"{changed}: of" if changed and len(farthest) > 1 else "Of"
        yield f"{lead} the step of {format_count(prediction.workers, 'worker')}: {', '.join(named)}."


def largest_part(prediction: "Prediction") -> str:
    """Return ``computing 63 %``."""
    if not prediction.made_of:
        return ""
    part, share = max(prediction.made_of.items(), key=lambda item: item[1].value)
    return f"{part} {100 * share.value:.0f} %"


def _moved(row: "Sensitivity") -> str:
    return f"{_line(row.halved)} the step with half of it, {_line(row.doubled)} with twice"


def deciding_value(rows: "Sequence[Sensitivity]") -> str:
    """Return which value moves a step most where it is halved or doubled, and which assumed one; empty of none."""
    if not rows:
        return ""
    first = rows[0]
    if first.moves < _NOT_MOVED:
        return "No value that a link or a prior gives moves the step by 1 % where it is halved or doubled."
    lines = [f"What decides most is the {first.name} ({first.how}): {_moved(first)}."]
    stated = next((row for row in rows[1:] if row.how == "stated" and row.moves < _NOT_MOVED), None)
    if stated is not None:
        lines.append(f"Half or twice the {stated.name} that was stated changes it by less than 1 %.")
    assumed = next((row for row in rows if row.how == "assumed"), None)
    if assumed is None or assumed.moves < _NOT_MOVED:
        lines.append("No assumed value changes it by 1 %.")
    elif assumed is not first:
        lines.append(f"Of assumed values it is the {assumed.name}: {_moved(assumed)}.")
    return " ".join(lines)


def sensitivity_parts(rows: "Sequence[Sensitivity]", workers: int) -> Iterator[Part]:
    """Yield how a step changes with each of its values."""
    if not rows:
        return
    table = SectionTable(
        [Column("known", "text"), Column("with half"), Column("with twice")],
        [
            TableRow(row.name, [Cell(row.how), Cell(*times(*astuple(row.halved))), Cell(*times(*astuple(row.doubled)))])
            for row in rows
        ],
        "value",
        ("wide", "stacked", "split"),
        label="What moves the step",
    )
    about = f"Of {format_count(workers, 'worker')}: the step over what it takes as predicted."
    yield Section("What moves the step", [table], about, folded=True)


def best_first(groups: "Sequence[Sequence[Prediction]]") -> "list[Sequence[Prediction]]":
    """Return the predictions of models by workload, those of most samples per second with the most workers first."""
    workloads = list(dict.fromkeys(group[0].key.workload for group in groups))
    most = {name: _most_workers([group for group in groups if group[0].key.workload == name]) for name in workloads}

    def place(group: "Sequence[Prediction]") -> tuple[int, float]:
        workload = group[0].key.workload
        return workloads.index(workload), -_throughput(group, most[workload])

    return sorted(groups, key=place)


def _most_workers(groups: "Sequence[Sequence[Prediction]]") -> int:
    """Return the most workers that are predicted of most models."""
    counts = [each.workers for group in groups for each in group if each.throughput is not None]
    return max(counts, key=lambda workers: (counts.count(workers), workers), default=0)


def _throughput(group: "Sequence[Prediction]", workers: int) -> float:
    rates = [each.throughput.value for each in group if each.throughput and each.workers == workers]
    return max(rates, default=0.0)


def ranking_section(groups: "Sequence[Sequence[Prediction]]") -> Section | None:
    """Return which model of several is fastest on each workload; None where no workload has two."""
    ordered = best_first(groups)
    lines = []
    for workload in dict.fromkeys(group[0].key.workload for group in ordered):
        alike = [group for group in ordered if group[0].key.workload == workload]
        workers = _most_workers(alike)
        rivals = (_quickest(group, workers) for group in alike)
        known = [rival for rival in rivals if rival is not None]
        if len(known) > 1:
            lines.append(_fastest(known))
    return Section("Fastest", [], "Intervals are of 90 %.", verdict=" ".join(lines), id="answer") if lines else None


def _quickest(group: "Sequence[Prediction]", workers: int) -> "Prediction | None":
    """Return the combination of changes of so many workers with most samples per second; None if all are refused."""
    rated = [(each.throughput.value, each) for each in group if each.throughput and each.workers == workers]
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def _fastest(known: "Sequence[Prediction]") -> str:
    best, *others = known
    shown = rate(Interval(*astuple(best.throughput))).line if best.throughput else ""
    labels = {id(each): _label(each, known) for each in known}
    slower = [(labels[id(other)], _slowdown(best, other)) for other in others]
    tied = [label for label, ratio in slower if ratio.low <= 1.0]
    behind = [f"{label} {_shown(ratio).line}" for label, ratio in slower if ratio.low > 1.0]
    lead = f"{best.key.workload}, {format_count(best.workers, 'worker')}: {labels[id(best)]} is predicted"
    first = f"{lead} fastest, {shown} samples/s"
    if tied:
        first = f"{lead} {shown} samples/s, and cannot be distinguished from {listed(tied)}"
    return f"{first}; {', '.join(behind)} its time." if behind else f"{first}."


def _label(prediction: "Prediction", among: "Sequence[Prediction]") -> str:
    """Return framework and strategy; the whole name where two models have the same of both."""
    key = prediction.key
    short = [(each.key.framework, each.key.strategy) for each in among]
    return f"{key.framework} {key.strategy}" if short.count((key.framework, key.strategy)) == 1 else key.name


def _shown(ratio: Interval[float, float]) -> Shown:
    wide = is_undecided(ratio.low, ratio.high)
    return times(ratio.value, None if wide else ratio.low, None if wide else ratio.high)


def _slowdown(best: "Prediction", other: "Prediction") -> Interval[float, float]:
    """Return how many times the time of ``best`` another model takes; their draws are shuffled, as independent ones."""
    assert best.draws is not None and other.draws is not None  # noqa: S101, PT018 - others are left out
    shuffled = np.random.default_rng(0).permutation(other.draws[1])
    low, middle, high = np.quantile(best.draws[1] / shuffled, _LEVELS)
    return Interval(float(middle), float(low), float(high))
