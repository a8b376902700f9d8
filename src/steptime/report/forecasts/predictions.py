"""Predictions: of a profile's models, of a user's own script, and of measured scaling curves."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.analysis.ablation.pop import ASYNCHRONOUS
from steptime.document.number_format import UNKNOWN, listed, long_time_unit, number, percent, rate
from steptime.document.section import (
    EVERYWHERE,
    Cell,
    Column,
    Figures,
    Layout,
    Part,
    Section,
    SectionTable,
    Sentences,
    TableRow,
    cells,
)
from steptime.phases import HIDDEN, PHASES
from steptime.report.forecasts.answers import (
    BANDS,
    curve_figures,
    farthest_answer,
    is_known,
    is_wide,
    model_answer,
    model_figures,
    script_figures,
    time_shown,
)
from steptime.report.forecasts.decisions import (
    deciding_value,
    farthest_changes,
    largest_part,
    more_workers,
    pair_answers,
    pair_parts,
    parts_of_step,
    sensitivity_parts,
)
from steptime.report.ranking import flop_rate, tokens_rate
from steptime.report.refusals import RefusedWorkers, refusals
from steptime.results.json_form import Interval
from steptime.scaling.knee import knee_line
from steptime.units import format_count, format_seconds

if TYPE_CHECKING:  # whose models take longer to import than most reports
    from steptime.fitting.attached_profile import AttachedProfile
    from steptime.predict.attached import AttachedPrediction
    from steptime.predict.paired import PairedRatio
    from steptime.predict.predict import Prediction
    from steptime.predict.sensitivity import Sensitivity
    from steptime.predict.worker_ratio import WorkerRatio
    from steptime.scaling.empty_columns import EmptyColumn
    from steptime.scaling.forecast import Forecast, ForecastPoint
    from steptime.scaling.predicted_knees import PredictedKnees

_NEGLIGIBLE_S = 5e-8
_NARROWER = 0.98
"""An empty column that is not expected to narrow an interval by as much is not asked for."""
_LONGEST_COMMAND = 60
_EXTRAPOLATION = "Extrapolation is how far a number of workers lies outside the measured ones, as a ratio."
_LAYOUTS: tuple[Layout, ...] = ("wide", "stacked", "packed", "split")
_POP = ("parallel", "balance", "comm.", "serial.", "transfer", "comput.", "global", "input")


def model_section(  # noqa: PLR0913 - what one model predicts
    group: "Sequence[Prediction]",
    others: "Sequence[Prediction]",
    knees: "Sequence[PredictedKnees]",
    assumed: "Callable[[Sequence[Prediction]], str]",
    *,
    pairs: "Sequence[PairedRatio]" = (),
    moved: "Sequence[Sensitivity]" = (),
    shared: Collection[RefusedWorkers] | None = None,
    name: str = "",
    unmeasured: str = "",
    doubt: str = "",
) -> Section:
    """Return the section of one model's predictions.

    Args:
        group: its predictions.
        others: of them, with another layout of workers on hosts than the assumed one.
        knees: where more workers bring too little, for each combination of changes.
        assumed: returns the layouts and links of some of them.
        pairs: of them, one over another.
        moved: what moves the step of the most workers.
        shared: of one of several models, the refusals that are shown ahead of all; its section is brief, without how a
            step splits up and what would narrow its interval.
        name: of the model; by default that of its key.
        unmeasured: what a workload that was not measured is computed from.
        doubt: why what decides the step of the most workers may be too high.
    """
    brief = shared is not None
    name = name or group[0].key.name
    refused = [each.sentence for each in refusals(group) if each not in (shared or ())]
    if all(each.refused for each in group):
        return Section(name, [replace(_steps(group), only="page")], verdict=" ".join(refused))
    batches = sorted({each.deployment.batch for each in group if each.deployment})
    batch = f", batch {', '.join(map(str, batches))} per worker" if batches else ""
    answer = " ".join([*filter(None, [unmeasured]), model_answer(group, assumed, pair_answers(pairs)), *refused])
    parts: list[Part] = [
        Sentences([*parts_of_step(group), *filter(None, [deciding_value(moved, farthest_changes(group)), doubt])]),
        Sentences(list(_also_assumed(assumed(group).split("; "), answer))),
        Figures(partial(model_figures, group), note=BANDS),
        _steps(group),
        Sentences(list(dict.fromkeys(map(_other_layout, others)))),
    ]
    if not brief:
        most = max((each.workers for each in group if each.step_s), default=0)
        parts += [*pair_parts(pairs), *(sensitivity_parts(moved, most, farthest_changes(group)) if moved else [])]
        parts += [*_work(group), *_phases(group), *_efficiencies(group)]
    parts.append(Sentences([*([] if brief else _uncertainty(group)), *_knees(knees)]))
    return Section(name + batch, [part for part in parts if not _is_empty(part)], verdict=answer)


def _also_assumed(clauses: Sequence[str], answer: str) -> Iterator[str]:
    """Yield what the answer leaves out of layouts and links."""
    left = [each for each in clauses if each and each not in answer]
    if left:
        text = "; ".join(left)
        yield f"{'Also assumed' if answer else 'Assumed'}: {text}{'' if text.endswith('…') else '.'}"


def _is_empty(part: Part) -> bool:
    return isinstance(part, Sentences) and not part.texts


def _names(group: "Sequence[Prediction]") -> tuple[str, list[str]]:
    """Return the title of the column of names, and the name of each row: what was changed, and the workers."""
    texts = [each.query.changed_texts for each in group]
    changed = list(dict.fromkeys(key for each in texts for key in each))
    title = ", ".join([*(key.removeprefix("interconnect.") for key in changed), "workers"])
    return title, [
        ", ".join([*(text.get(key, UNKNOWN) for key in changed), str(each.workers)])
        for text, each in zip(texts, group, strict=True)
    ]


def _steps(group: "Sequence[Prediction]") -> SectionTable:
    with_epochs = any(each.epoch_s for each in group)
    columns = [
        Column("step time"),
        Column("samples/s"),
        Column("efficiency"),
        Column("most of it", "text"),
        Column("extrapolation", shown=[each for each in EVERYWHERE if each != "packed"]),
        *([Column("epoch")] if with_epochs else []),
    ]
    title, names = _names(group)
    rows = []
    for name, each in zip(names, group, strict=True):
        shown = _step_cells(each)
        rows.append(TableRow(name, [*shown, *cells(*[UNKNOWN] * (len(columns) - len(shown)))]))
    return SectionTable(columns, rows, title, _LAYOUTS, label="Predicted steps")


def _step_cells(each: "Prediction") -> list[Cell]:
    if each.step_s is None or each.throughput is None or each.efficiency is None or each.extrapolation is None:
        return cells("refused")
    known = is_known(each)
    found = [
        Cell(*time_shown(each.step_s)),
        Cell(*rate(Interval(*astuple(each.throughput)))) if known else Cell(UNKNOWN),
        Cell(*percent(*astuple(each.efficiency))) if known else Cell(UNKNOWN),
        Cell(largest_part(each)),
        Cell(f"{each.extrapolation:.3g}"),
    ]
    return [*found, Cell(*time_shown(each.epoch_s, long_time_unit(each.epoch_s.value)))] if each.epoch_s else found


def _other_layout(other: "Prediction") -> str:
    step, _, efficiency, *_ = _step_cells(other)
    changed = ", ".join(filter(None, [other.query.changes(), "workers_per_host=1"]))
    workers = f"With {changed}, the step of {other.workers} workers"
    if not is_known(other):
        return f"{workers} is {step.line}."
    return f"{workers} takes {step.line}, efficiency {efficiency.line}."


def _table(
    title: str, about: str, group: "Sequence[Prediction]", titles: Sequence[str], rows: list[list[str]]
) -> Section:
    """Return a table of texts of predictions below a title of its own."""
    names, workers = _names(group)
    named = [TableRow(name, cells(*texts)) for name, texts in zip(workers, rows, strict=True)]
    columns = [Column(each) for each in titles]
    return Section(title, [SectionTable(columns, named, names, ("wide", "split"), label=title)], about, folded=True)


def _work(group: "Sequence[Prediction]") -> Iterator[Part]:
    """Yield tokens, FLOP/s and MFU of each step that is not refused, where tokens or a peak are known."""
    known = [each for each in group if each.work and (each.work.peak_source or each.work.tokens_per_s.value)]
    rows = [
        [
            tokens_rate(each.work.tokens_per_s).text,
            flop_rate(each.work.flop_per_s_per_device).text,
            percent(*astuple(each.work.mfu)).text,
        ]
        for each in known
        if each.work
    ]
    if rows:
        about = "See docs/reading-a-report.md; intervals are in the JSON."
        yield _table("Work", about, known, ["tokens/s", "per device", "MFU"], rows)


def _phases(group: "Sequence[Prediction]") -> Iterator[Part]:
    """Yield the phases of each step that is known; those that are nothing everywhere are left out."""
    known = [each for each in group if is_known(each)]
    names = [
        name
        for name in dict.fromkeys(name for each in known for name in each.phases)
        if any((phase := each.phases.get(name)) and abs(phase.value_s) > _NEGLIGIBLE_S for each in known)
    ]
    rows = [
        [format_seconds(phase.value_s) if (phase := each.phases.get(name)) else UNKNOWN for name in names]
        for each in known
    ]
    if names:
        titles = {phase.name: phase.short_title for phase in (*PHASES, HIDDEN)}
        yield _table("Phases", "What is hidden is not part of a step.", known, [titles[name] for name in names], rows)


def _efficiencies(group: "Sequence[Prediction]") -> Iterator[Part]:
    """Yield the POP efficiencies of each step that is known, or why a strategy has none."""
    known = [each for each in group if is_known(each)]
    modelled = [each for each in known if each.pop]
    rows = [[f"{100 * share.value:.0f} %" for share in (each.pop or {}).values()] for each in modelled]
    if rows:
        about = "See docs/breakdown.md; intervals are in the JSON."
        yield replace(_table("POP efficiencies", about, modelled, _POP, rows), only="page")
    elif known:
        yield Sentences([f"no {ASYNCHRONOUS}"])


def _uncertainty(group: "Sequence[Prediction]") -> Iterator[str]:
    """Yield of the farthest step how its interval splits, and the measurement that would narrow it most."""
    known = [each for each in group if each.shares is not None]
    if known and (last := known[-1]).shares:
        at = format_count(last.workers, "worker")
        advice = last.narrowing
        narrower = f"It narrows most by {advice}" if advice else "No single measurement would narrow it by 2 %."
        yield f"The interval at {at}: {last.shares.in_words()}. {narrower}"


def _knees(bends: "Sequence[PredictedKnees]") -> Iterator[str]:
    """Yield where more workers bring too little, for each combination of changes that is predicted so far."""
    for bend in bends:
        if line := knee_line(bend.knees or []):
            changed = bend.query.changes()
            yield f"{changed}: {line}" if changed and len(bends) > 1 else line


def script_section(
    profile: "AttachedProfile",
    predictions: "Sequence[AttachedPrediction]",
    line: str,
    ratios: "Sequence[WorkerRatio]" = (),
) -> Section:
    """Return what a user's own script takes on other numbers of workers; ``line`` is of its knees."""
    known = [(each, each.step_s) for each in predictions if each.step_s is not None]
    more = {"tokens/s": [each.tokens_per_s for each, _ in known], "MFU": [each.mfu for each, _ in known]}
    shown = {title: values for title, values in more.items() if any(values)}
    titles = ["workers", "step time", "efficiency", "exposed", "waiting", "extrapolation", *shown]
    rows = [
        TableRow(
            str(each.workers),
            [Cell(*time_shown(step_s)), *cells(*_of_script(each), f"{each.extrapolation:.3g}x")]
            + [_rate_cell(title, values[place]) for title, values in shown.items()],
        )
        for place, (each, step_s) in enumerate(known)
    ]
    command = " ".join([Path(profile.command[0]).name, *profile.command[1:]])[:_LONGEST_COMMAND]
    trainings = f"Predicted is one of several trainings: {profile.trainings}." if profile.trainings else ""
    tested = profile.untested(max((each.workers for each, _ in known), default=0))
    answers = [
        farthest_answer(predictions, tested, more_workers(ratios)),
        *(each.sentence for each in refusals(predictions)),
    ]
    table = SectionTable([Column(title) for title in titles[1:]], rows, titles[0], _LAYOUTS, label="Predicted steps")
    parts: list[Part] = [Figures(partial(script_figures, predictions), note=BANDS), table] if rows else []
    notes = profile.notes(max(each.workers for each, _ in known)) if known else []
    parts.append(Sentences([text for text in (*_links_of(known), line, *notes, trainings) if text]))
    about = "Intervals are of 90 %." if rows else ""
    measured = format_count(profile.workers, "worker")
    title = f"{command}, {measured} measured, the same batch per worker"
    return Section(title, parts, about, verdict=" ".join(filter(None, answers)))


def _links_of(known: "Sequence[tuple[AttachedPrediction, Interval]]") -> Iterator[str]:
    """Yield on which hosts and over which link the workers of each row are."""
    rows: dict[str, list[str]] = {}
    for each, _ in known:
        if each.over:
            rows.setdefault(each.over, []).append(str(each.workers))
    if rows:
        yield f"Hosts and links: {'; '.join(f'{listed(counts)} workers {over}' for over, counts in rows.items())}."


def _rate_cell(title: str, value: Interval | None) -> Cell:
    """Return tokens a second, or a share of the peak; neither of a step that is inconclusive."""
    if value is None or is_wide(value):
        return Cell(UNKNOWN)
    return Cell(*(percent(value.value, value.low, value.high) if title == "MFU" else rate(value)))


def _of_script(each: "AttachedPrediction") -> list[str]:
    """Return efficiency, exposed communication and waiting; none of a step that is inconclusive."""
    if each.step_s is None or is_wide(each.step_s):
        return [UNKNOWN] * 3
    times = (format_seconds(each.exposed_s or 0.0), format_seconds(each.waiting_s or 0.0))
    return [f"{100 * (each.efficiency or 0.0):.0f} %", *times]


def curve_sections(forecasts: "Sequence[Forecast]") -> list[Section]:
    """Return a section for each measured scaling curve, and what their columns mean."""
    terms = Section("Terms and notes", [Sentences([f"Intervals are of 90 %. {_EXTRAPOLATION}"], "dim")])
    return [*map(_curve, forecasts), terms]


def _curve(found: "Forecast") -> Section:
    first = found.curve.fit[0].workers
    works = [point.work for point in found.points]
    rates = {
        "tokens/s": [work.tokens_per_s if work else None for work in works],
        "MFU": [work.mfu if work else None for work in works],
    }
    shown = {title: values for title, values in rates.items() if any(values)}
    rows = [
        TableRow(
            str(point.workers),
            [
                Cell(*time_shown(point.step_s)),
                *cells(*_of_curve(point), f"{point.extrapolation:.3g}"),
                *[_rate_cell(title, values[place]) for title, values in shown.items()],
            ],
        )
        for place, point in enumerate(found.points)
    ]
    columns = [Column(title) for title in ("step time", "samples/s", "efficiency", "extrapolation", *shown)]
    parts: list[Part] = [
        Figures(partial(curve_figures, found), note=BANDS),
        SectionTable(columns, rows, "workers", _LAYOUTS, label="Forecast"),
    ]
    held = [
        TableRow(
            str(point.workers),
            [
                Cell(format_seconds(point.measured)),
                Cell(*time_shown(Interval(point.predicted, point.low, point.high))),
                Cell(f"{point.ape:.1f} %"),
            ],
        )
        for point in found.held_out
    ]
    if held:
        titles = [Column("measured"), Column("predicted"), Column("error")]
        table = SectionTable(titles, held, "workers", _LAYOUTS, label="Held-out rows")
        parts.append(Section("Held-out rows", [table]))
    cores = f"Cores: {found.cores}." if found.cores else ""
    parts += [Sentences([line]) for line in (knee_line(found.knees), cores) if line]
    parts += _narrowing(found)
    answer = farthest_answer(found.points, found.tested.in_words(), more_workers(found.ratios))
    about = f"Efficiency is relative to the measured step of {first} worker{'s'[: first > 1]}."
    return Section(found.curve.name, parts, about, verdict=answer)


def _of_curve(point: "ForecastPoint") -> list[str]:
    """Return throughput and efficiency; none of a step that is inconclusive."""
    if is_wide(point.step_s):
        return [UNKNOWN] * 2
    throughput = UNKNOWN if point.throughput is None else number(point.throughput)
    return [throughput, f"{100 * point.efficiency:.0f} %"]


def _narrowing(found: "Forecast") -> Iterator[Part]:
    """Yield which empty columns and which further points would narrow the interval of the farthest count."""
    if not found.points:
        return
    last = max(found.points, key=lambda point: point.workers)
    now = last.step_s.high / last.step_s.low
    rows = [
        [f"{each.ratio:.2f}", f"the column {each.column}: {each.question}{_beside(each, found, last.workers)}"]
        for each in found.empty_columns
        if each.ratio < _NARROWER * now
    ]
    rows += [
        [f"{point.ratio:.2f}", f"one more measured point, at {point.workers} workers"]
        for point in sorted(found.further_points, key=lambda each: each.workers)
    ]
    if (pair := found.further_pair) is not None:
        at = " and ".join(map(str, pair.workers))
        rows.append([f"{pair.ratio:.2f}", f"two more measured points, at {at} workers"])
    if rows:
        lead = f"The ends of the interval at {format_count(last.workers, 'worker')} lie a factor of {now:.2f} apart."
        yield Sentences([f"{lead} What would narrow it:", *(f"{ratio} expected with {what}" for ratio, what in rows)])


def _beside(empty: "EmptyColumn", found: "Forecast", workers: int) -> str:
    """Return what helps to answer an empty column: what measures it, or what ``workers`` would read of a store."""
    if empty.asks_for_store:
        return _read_by(found, workers)
    return f" ({empty.benchmark} measures it)" if empty.benchmark else ""


def _read_by(found: "Forecast", workers: int) -> str:
    """Return how many samples per second the most measured workers read, and so many workers would."""
    batch, most = found.curve.setup.batch_per_worker, found.curve.fit[-1]
    if batch is None:
        return ""
    reading = most.workers * batch / most.step_time
    asked = number(reading * workers / most.workers)
    return f" {most.workers} workers read {number(reading)}; {workers}, were they as fast, would read {asked}"
