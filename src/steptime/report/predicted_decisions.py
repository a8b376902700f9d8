"""What predictions answer to a decision: which model is fastest, what more workers or another link bring, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from operator import attrgetter
from typing import TYPE_CHECKING

from steptime.document.number_format import percent, times
from steptime.document.section import Cell, Column, Part, Section, SectionTable, TableRow
from steptime.report.predicted_answers import changes_of, is_known
from steptime.results.json_form import Interval
from steptime.units import format_count, is_undecided

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.paired import PairedRatio
    from steptime.predict.predict import Prediction
    from steptime.predict.sensitivity import Sensitivity
    from steptime.predict.worker_ratio import WorkerRatio

_LITTLE = 0.005
_NOT_MOVED = 0.01
_MOST_PAIRS = 3
_PARTS = {"communication": "communication that nothing hides", "waiting": "waiting for other workers"}


def _line(ratio: Interval[float, float]) -> str:
    wide = is_undecided(ratio.low, ratio.high)
    return f"{ratio.low:.2g}x to {ratio.high:.2g}x" if wide else times(*astuple(ratio)).line


def pair_sentence(pair: "PairedRatio") -> str:
    """Return ``8 workers take 0.54x (0.50 to 0.63) the time of 4, for 1.08x (0.99 to 1.26) the worker hours``."""
    fewer, more = pair.baseline.workers, pair.other.workers
    unclear = pair.time.low <= 1.0 <= pair.time.high
    doubt = " (no difference shown)" if unclear else ""
    if pair.baseline.query.texts == pair.other.query.texts:
        changed = f"With {changes_of(pair.other)}, " if pair.other.query.texts else ""
        return f"{changed}{workers_sentence((fewer, more), pair.time, pair.worker_time)}"
    ends = f"{changes_of(pair.other)} takes {_line(pair.time)} the time of {changes_of(pair.baseline)}"
    return f"With {format_count(more, 'worker')}, {ends}{doubt}."


def workers_sentence(
    workers: tuple[int, int], time: Interval[float, float], worker_time: Interval[float, float]
) -> str:
    """Return what more workers take over fewer, for the same samples; the ends alone where they claim no number."""
    doubt = " (no difference shown)" if time.low <= 1.0 <= time.high else ""
    lead = f"{format_count(workers[1], 'worker')} take {_line(time)} the time of {workers[0]}"
    return f"{lead}{doubt}, for {_line(worker_time)} the worker hours."


def more_workers(ratios: "Sequence[WorkerRatio]") -> str:
    """Return what the most workers bring over the next fewer; empty of a single number."""
    return workers_sentence(ratios[-1].workers, ratios[-1].time, ratios[-1].worker_time) if ratios else ""


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
    farthest = {changes_of(each): each for each in sorted(group, key=attrgetter("workers")) if is_known(each)}
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


def farthest_changes(group: "Sequence[Prediction]") -> str:
    """Return the changes of the step of the most workers, of which sensitivities are; empty where all have the same."""
    answered = [each for each in group if each.step_s is not None]
    several = len({changes_of(each) for each in answered}) > 1
    return changes_of(max(answered, key=attrgetter("workers"))) if several else ""


def deciding_value(rows: "Sequence[Sensitivity]", changed: str = "") -> str:
    """Return which value moves a step most where it is halved or doubled, and which assumed one; empty of none.

    Args:
        rows: the largest first.
        changed: what the step was predicted with, where there are others.
    """
    if not rows:
        return ""
    first = rows[0]
    lead = f"{changed}: " if changed else ""
    if first.moves < _NOT_MOVED:
        return f"{lead}No value that a link or a prior gives moves the step by 1 % where it is halved or doubled."
    lines = [f"{lead}What decides most is the {first.name} ({first.how}): {_moved(first)}."]
    stated = next((row for row in rows[1:] if row.how == "stated" and row.moves < _NOT_MOVED), None)
    if stated is not None:
        lines.append(f"Half or twice the {stated.name} that was stated changes it by less than 1 %.")
    assumed = next((row for row in rows if row.how == "assumed"), None)
    if assumed is None or assumed.moves < _NOT_MOVED:
        lines.append("No assumed value changes it by 1 %.")
    elif assumed is not first:
        lines.append(f"Of assumed values it is the {assumed.name}: {_moved(assumed)}.")
    return " ".join(lines)


def sensitivity_parts(rows: "Sequence[Sensitivity]", workers: int, changed: str = "") -> Iterator[Part]:
    """Yield how a step changes with each of its values."""
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
    with_changes = f" with {changed}" if changed else ""
    about = f"Of {format_count(workers, 'worker')}{with_changes}: the step over what it takes as predicted."
    yield Section("What moves the step", [table], about, folded=True)
