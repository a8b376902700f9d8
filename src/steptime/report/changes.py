"""A comparison of two sides as sections: the verdict, each trial, where the difference comes from, and what changed."""

from collections.abc import Iterator, Sequence

from steptime.measurements.ablation.gap import Difference, Gap
from steptime.measurements.compared.form import ChangedFact, ChangeOfTrial, ChangeReport
from steptime.measurements.json_form import IntervalOverLaunches
from steptime.report.breakdown import TITLES
from steptime.report.number_format import UNKNOWN, Shown, count, listed, number, percent, seconds, time_unit, times
from steptime.report.section import Cell, Column, Part, Section, SectionTable, Sentences, Style, TableRow, cells

_STYLES: dict[str, Style] = {"faster": "good", "slower": "bad", "no difference": "", "undecided": "warning"}
_MOST_NAMED = 3
"""Trials of one verdict that the first line names."""
_ABOUT_TRIALS = (
    "Times are means over steps. Changes are of the second side relative to the baseline, positive where it is slower; "
    "their intervals hold together at {level:.0f} %. The smallest change is what these launches would have shown with "
    "80 % probability, had it been there."
)
_ABOUT_PHASES = (
    "From the baseline's step to that of the second side, by the breakdown launches of both. Each interval is at 95 % "
    "by itself."
)


def headline(found: ChangeReport) -> str:
    """Return the verdict in one line, which names the baseline."""
    second, first = found.second.name, f"{found.first.name} (the baseline)"
    if len(found.trials) == 1:
        return f"{_failed(found)}{_single(found.trials[0], first, second)}"
    clauses = [*_shown(found, "slower"), *_shown(found, "faster")]
    if tied := [each for each in found.trials if each.verdict == "no difference"]:
        largest = max(each.smallest_change or 0.0 for each in tied)
        clauses.append(f"{len(tied)} with no difference larger than {_share(largest)}")
    if undecided := sum(each.verdict == "undecided" for each in found.trials):
        clauses.append(f"{undecided} undecided")
    return f"{_failed(found)}{second} against {first}, {count(len(found.trials), 'trial')}: {'; '.join(clauses)}"


def change_sections(found: ChangeReport) -> list[Section]:
    """Return what a comparison found, without its headline."""
    names = f"{found.first.name} → {found.second.name}"
    about = _ABOUT_TRIALS.format(level=100 * found.level)
    if found.threshold is not None:
        about += (
            f" A trial fails if even its {100 * found.gate_level:.0f} % interval is beyond the threshold, as that of a "
            "change as large as the last column would be with 80 % probability."
        )
    if found.interleaved:
        about += " Launches of both ran side by side in randomised blocks."
    built = [Section(f"Trials, {names}", [_trials(found), *_overall(found)], about)]
    gaps = [(each.name, each.gap) for each in found.trials if each.gap]
    parts = [Section(name, [_waterfall(found, gap)]) for name, gap in gaps]
    if parts:
        built.append(Section("Where the difference comes from", parts, _ABOUT_PHASES, folded=True))
    for title, facts in (("Software that changed", found.software), ("Hardware that changed", found.hardware)):
        if facts:
            built.append(Section(title, list(_facts(found, facts)), folded=True))
    if found.unpaired:
        sides = {"first": found.first.name, "second": found.second.name}
        texts = [f"{each.name} of {sides[each.side]}: {each.reason}" for each in found.unpaired]
        built.append(Section("Not compared", [Sentences(texts, listed=True)]))
    if marks := _marks(found.trials):
        built.append(Section("Conditions", [Sentences(marks, "dim", listed=True)], folded=True))
    if found.notes:
        built.append(Section("What limits this", [Sentences(found.notes, listed=True)]))
    return built


def in_a_sentence(found: ChangeReport, trial: ChangeOfTrial) -> str:
    """Return the verdict on one trial, which names the baseline."""
    return _single(trial, f"{found.first.name} (the baseline)", found.second.name)


def change(ratio: IntervalOverLaunches) -> Shown:
    """``+8.1 % (+3.2 to +13.2)``: the step time of the second side relative to the baseline's, less one."""
    shown = percent(ratio.value - 1.0, _less_one(ratio.low), _less_one(ratio.high))
    return Shown(_signed(shown.text), " to ".join(map(_signed, shown.interval.split(" to "))))


def _single(trial: ChangeOfTrial, first: str, second: str) -> str:
    smallest = f"these launches would have shown {_share(trial.smallest_change)}"
    ratio = trial.ratio
    if trial.verdict == "slower":
        slower = percent(ratio.value - 1.0, _less_one(ratio.low), _less_one(ratio.high)).line
        return f"{second} is slower than {first} by {slower}; {smallest}: {trial.name}"
    if trial.verdict == "faster":
        speedup = times(1.0 / ratio.value, 1.0 / (ratio.high or 1.0), 1.0 / (ratio.low or 1.0)).line
        return f"{second} is faster than {first}, speed-up {speedup}; {smallest}: {trial.name}"
    if trial.verdict == "no difference":
        return (
            f"no difference larger than {_share(trial.smallest_change)} between {first} and {second} "
            f"({change(ratio).line}): {trial.name}"
        )
    return f"undecided whether {second} differs from {first}, by single launches ({change(ratio).line}): {trial.name}"


def _failed(found: ChangeReport) -> str:
    if found.threshold is None:
        return ""
    limit = f"slower by more than {_share(found.threshold)}"
    return f"FAILED, {limit}: " if found.fails else f"passed, none shown to be {limit}: "


def _shown(found: ChangeReport, verdict: str) -> Iterator[str]:
    own = [each for each in found.trials if each.verdict == verdict]
    own.sort(key=lambda each: abs(each.ratio.value - 1.0), reverse=True)
    if own:
        named = [f"{each.name} {change(each.ratio).line}" for each in own[:_MOST_NAMED]]
        more = f" and {len(own) - len(named)} more" if len(own) > len(named) else ""
        yield f"{len(own)} {verdict} ({listed(named) if not more else ', '.join(named)}{more})"


def _trials(found: ChangeReport) -> SectionTable:
    columns = [
        Column("verdict", "text"),
        Column(found.first.name),
        Column(found.second.name),
        Column("change"),
        Column("smallest\nchange"),
        Column("launches", "text"),
    ]
    if found.threshold is not None:
        limit = _share(found.threshold)
        columns += [Column(f"chance to\nshow {limit}"), Column("more launches\nfor 80 %"), Column("fails from")]
    rows = [TableRow(each.name, _cells(found, each)) for each in found.trials]
    return SectionTable(columns, rows, "trial", layouts=("wide", "stacked"), label="Trials")


def _cells(found: ChangeReport, trial: ChangeOfTrial) -> list[Cell]:
    factor, unit = time_unit(trial.first_step_s)
    first, second = (f"{number(each * factor)} {unit}" for each in (trial.first_step_s, trial.second_step_s))
    shown = [
        Cell("FAILED" if trial.fails else trial.verdict, style=_STYLES[trial.verdict]),
        *cells(first, second, change(trial.ratio), _share(trial.smallest_change)),
        Cell(f"{trial.launches[0]} and {trial.launches[1]}"),
    ]
    if found.threshold is not None:
        more = trial.launches_to_threshold
        launches = UNKNOWN if more is None else str(more)
        shown += cells(_share(trial.power_at_threshold), launches, _share(trial.smallest_failing))
    return shown


def _overall(found: ChangeReport) -> Iterator[Part]:
    if found.overall:
        yield Sentences([f"All trials together, geometric mean: {change(found.overall).line}."])


def _waterfall(found: ChangeReport, gap: Gap) -> SectionTable:
    """Return the way from one step to the other: what each phase adds, and the step with it."""
    step = next(each for each in found.trials if each.gap is gap)
    start = step.first_step_s
    unit = time_unit(start)
    rows = []
    for name, part in gap.parts.items():
        if part.value_s == part.low_s == part.high_s == 0.0:
            continue  # neither side can have it
        share = percent(part.value_s / start, None, None).text
        rows.append(TableRow(TITLES[name], cells(_added(part, unit), _signed(share))))
    rows.append(
        TableRow(
            "step",
            cells(_added(gap.step_s, unit), _signed(percent(gap.step_s.value_s / start, None, None).text)),
            best=True,
        )
    )
    return SectionTable(
        [Column("difference"), Column("of the baseline's step")], rows, "phase", layouts=("wide", "stacked")
    )


def _added(part: Difference, unit: tuple[float, str]) -> Shown:
    shown = seconds(part.value_s, part.low_s, part.high_s, unit)
    return Shown(
        _signed(shown.text),
        " to ".join(map(_signed, shown.interval.split(" to "))) if part.low_s is not None else shown.interval,
    )


def _facts(found: ChangeReport, facts: Sequence[ChangedFact]) -> Iterator[Part]:
    columns = [Column(found.first.name, "prose"), Column(found.second.name, "prose")]
    rows = [TableRow(each.fact, cells(each.first, each.second)) for each in facts if each.first and each.second]
    if rows:
        yield SectionTable(columns, rows, "fact", layouts=("wide", "stacked"))
    for side, alone in (
        (found.first, [f"{each.fact} {each.first}" for each in facts if each.second is None]),
        (found.second, [f"{each.fact} {each.second}" for each in facts if each.first is None]),
    ):
        if alone:
            yield Sentences([f"Only in {side.name}: {', '.join(alone)}."])


def _marks(trials: Sequence[ChangeOfTrial]) -> list[str]:
    marks: dict[str, list[str]] = {}
    for trial in trials:
        for flag in trial.flags:
            marks.setdefault(flag, []).append(trial.name)
    return [f"{mark} ({'all' if len(own) == len(trials) else '; '.join(own)})" for mark, own in marks.items()]


def _share(value: float | None) -> str:
    return percent(value, None, None).text


def _signed(text: str) -> str:
    return text if text.startswith(("-", "0 ", UNKNOWN)) or not text[:1].isdigit() else f"+{text}"


def _less_one(bound: float | None) -> float | None:
    return None if bound is None else bound - 1.0
