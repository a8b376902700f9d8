"""What predictions answer to a decision: which model is fastest, what more workers or another link bring, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from operator import attrgetter
from typing import TYPE_CHECKING

from steptime.document.number_format import percent, times
from steptime.document.section import Cell, Column, Part, Section, SectionTable, TableRow
from steptime.report.forecasts.answers import is_known, is_wide
from steptime.results.json_form import Interval
from steptime.units import format_count

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.predict.paired import PairedRatio
    from steptime.predict.predict import Prediction
    from steptime.predict.sensitivity import Sensitivity
    from steptime.predict.worker_ratio import WorkerRatio

_LITTLE = 0.005
_NOT_MOVED = 0.01
_MOST_PAIRS = 3
_PARTS = {"communication": "communication that nothing hides", "waiting": "waiting for other workers"}


def ratio_line(ratio: Interval[float, float]) -> str:
    """Return ``0.54x (0.50 to 0.63)``; the ends alone where they claim no number."""
    return f"{ratio.low:.2g}x to {ratio.high:.2g}x" if is_wide(ratio) else times(*astuple(ratio)).line


def pair_sentence(pair: "PairedRatio") -> str:
    """Return ``8 workers take 0.54x (0.50 to 0.63) the time of 4, for 1.08x (0.99 to 1.26) the worker hours``."""
    fewer, more = pair.baseline.workers, pair.other.workers
    if pair.baseline.query.texts == pair.other.query.texts:
        lead = f"With {changed}, " if (changed := pair.other.query.changes()) else ""
        return f"{lead}{workers_sentence((fewer, more), pair.time, pair.worker_time)}"
    ends = f"{pair.other.query.changes()} takes {ratio_line(pair.time)} the time of {pair.baseline.query.changes()}"
    return f"With {format_count(more, 'worker')}, {ends}{_doubt(pair.time)}."


def _doubt(time: Interval[float, float]) -> str:
    return " (no difference shown)" if time.low <= 1.0 <= time.high else ""


def workers_sentence(
    workers: tuple[int, int], time: Interval[float, float], worker_time: Interval[float, float]
) -> str:
    """Return what more workers take over fewer, for the same samples; the ends alone where they claim no number."""
    lead = f"{format_count(workers[1], 'worker')} take {ratio_line(time)} the time of {workers[0]}"
    return f"{lead}{_doubt(time)}, for {ratio_line(worker_time)} the worker hours."


def more_workers(ratios: "Sequence[WorkerRatio]") -> str:
    """Return what the most workers bring over the next fewer; empty of a single number."""
    return workers_sentence(ratios[-1].workers, ratios[-1].time, ratios[-1].worker_time) if ratios else ""


def pair_answers(pairs: "Sequence[PairedRatio]") -> list[str]:
    """Return of each combination of changes what the most workers bring, and what each brings over the first."""
    across, last = _answered(pairs)
    servers = ["Worker hours leave out servers."] if any(pair.has_servers for pair in last) else []
    return [*map(pair_sentence, [*across[:_MOST_PAIRS], *last[:_MOST_PAIRS]]), *servers]


def _answered(pairs: "Sequence[PairedRatio]") -> "tuple[list[PairedRatio], list[PairedRatio]]":
    """Return the ratios of combinations of changes, and of each combination that of the most workers."""
    last: dict[str, PairedRatio] = {}
    for pair in pairs:
        if pair.baseline.query.texts == pair.other.query.texts:
            last[pair.other.query.changes()] = pair
    return [pair for pair in pairs if pair.baseline.query.texts != pair.other.query.texts], [*last.values()]


def pair_parts(pairs: "Sequence[PairedRatio]") -> Iterator[Part]:
    """Yield a table of all ratios where the answer has not all of them."""
    if len(pairs) <= sum(len(answered[:_MOST_PAIRS]) for answered in _answered(pairs)):
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
    ends = [", ".join(filter(None, [side.query.changes(), str(side.workers)])) for side in (pair.other, pair.baseline)]
    return " over ".join(ends)


def parts_of_step(group: "Sequence[Prediction]") -> Iterator[str]:
    """Yield what the step of the most workers is made of, for each combination of changes."""
    farthest = {each.query.changes(): each for each in sorted(group, key=attrgetter("workers")) if is_known(each)}
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
    return f"{ratio_line(row.halved)} the step with half of it, {ratio_line(row.doubled)} with twice"


def farthest_changes(group: "Sequence[Prediction]") -> str:
    """Return the changes of the step of the most workers, of which sensitivities are; empty where all have the same."""
    answered = [each for each in group if each.step_s is not None]
    several = len({each.query.changes() for each in answered}) > 1
    return max(answered, key=attrgetter("workers")).query.changes() if several else ""


def deciding_value(rows: "Sequence[Sensitivity]", changed: str = "") -> str:
    """Return which value moves a step most where it is halved or doubled, and which assumed one; empty of none.

    Args:
        rows: the largest first.
        changed: what the step was predicted with, where there are others.
    """
    if not rows:
        return ""
    first = rows[0] if rows[0].moves >= _NOT_MOVED else max(rows, key=attrgetter("may_move"))
    lead = f"{changed}: " if changed else ""
    if first.may_move < _NOT_MOVED:
        return f"{lead}No value that a link or a prior gives moves the step by 1 % where it is halved or doubled."
    lines = [f"{lead}What decides most is the {first.name} ({first.how}): {_moved(first)}."]
    stated = next((row for row in rows if row is not first and row.how == "stated" and row.may_move < _NOT_MOVED), None)
    if stated is not None:
        lines.append(f"Half or twice the {stated.name} that was stated changes it by less than 1 %.")
    assumed = [row for row in rows if row.how == "assumed"]
    widest = max(assumed, key=attrgetter("may_move"), default=None)
    if widest is None or widest.may_move < _NOT_MOVED:
        lines.append("No assumed value changes it by 1 %.")
    elif assumed[0].moves < _NOT_MOVED and widest is not first:
        lines.append(f"Of assumed values only the {widest.name} may change it by 1 %: {_moved(widest)}.")
    elif first not in (assumed[0], widest):
        lines.append(f"Of assumed values it is the {assumed[0].name}: {_moved(assumed[0])}.")
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
