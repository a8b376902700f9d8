"""A comparison of two sides as sections: the verdict, each trial, where the difference comes from, and what changed.

A comparison for continuous integration: Markdown for a comment below a change, and JUnit XML for a list of tests.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from steptime.analysis.ablation.form import Difference, Gap
from steptime.analysis.compared.form import (
    MOST_EXCLUDED,
    ChangedFact,
    ChangeOfTrial,
    ChangeReport,
    ChangeVerdict,
    Order,
)
from steptime.document.number_format import (
    UNKNOWN,
    Shown,
    change,
    count,
    is_settled,
    listed,
    number,
    percent,
    percent_apart,
    seconds_apart,
    signed,
    time_unit,
    times,
)
from steptime.document.plain_text import plain_text
from steptime.document.section import (
    Cell,
    Column,
    Pairs,
    Part,
    Section,
    SectionTable,
    Sentences,
    Style,
    TableRow,
    Verbatim,
    cells,
)
from steptime.report.breakdown import TITLES
from steptime.report.changed_parts import part_section
from steptime.results.json_form import IntervalOverLaunches
from steptime.units import MOST_PERCENT

_STYLES: dict[str, Style] = {"faster": "good", "slower": "bad", "no difference": "", "undecided": "warning"}
_UNDECIDED = "undecided: "
_MOST_NAMED = 3
"""Trials of one verdict that the first line names."""
_ABOUT_TRIALS = (
    "Times are means over steps. Changes are of the second side relative to the baseline, positive where it is slower; "
    "their intervals are simultaneous at {level:.0f} %. The smallest change is the one that as many launches show with "
    "80 % probability."
)
_ABOUT_ORDER: dict[Order, str] = {
    "same blocks": " Launches of both ran side by side in randomised blocks.",
    "turns": " Runs of both took turns, by the times at which they began.",
    "one after the other": " Both were measured one after the other.",
    "unknown": "",
}
_ABOUT_PHASES = (
    "From the baseline's step to that of the second side, by the breakdown launches of both. Each interval is at 95 % "
    "by itself."
)


def headline(found: ChangeReport) -> str:
    """Return the verdict in one line, which names the baseline."""
    second, first = found.second.name, f"{found.first.name} (the baseline)"
    if len(found.trials) == 1:
        (trial,) = found.trials
        sentence = _single(trial, first, second, _chance(found, trial))
        return f"{_outcome(found)}{sentence.removeprefix(_UNDECIDED) if trial.outcome == 'undecided' else sentence}"
    clauses = [*_shown(found, "slower"), *_shown(found, "faster")]
    if tied := [each for each in found.trials if each.verdict == "no difference"]:
        largest = max(each.smallest_change or 0.0 for each in tied)
        clauses.append(f"{len(tied)} with no difference larger than {_share(largest)}")
    undecided = [each for each in found.trials if each.verdict == "undecided"]
    if single := sum(max(each.launches) == 1 for each in undecided):
        clauses.append(f"{single} undecided, with one launch each")
    if more := len(undecided) - single:
        clauses.append(f"{more} undecided, {_lacking(next(each for each in undecided if max(each.launches) > 1))}")
    return f"{_outcome(found)}{second} against {first}, {count(len(found.trials), 'trial')}: {'; '.join(clauses)}"


def change_sections(found: ChangeReport) -> list[Section]:
    """Return what a comparison found, without its headline."""
    names = f"{found.first.name} → {found.second.name}"
    about = _ABOUT_TRIALS.format(level=100 * found.level)
    if found.threshold is not None:
        about += (
            f" A trial fails if even its {100 * found.gate_level:.0f} % interval is beyond the threshold, and is "
            "undecided if a slowdown beyond it is not excluded and had a chance of less than 80 % to be shown."
        )
    about += _ABOUT_ORDER[found.order]
    built = [Section(f"Trials, {names}", [_trials(found), *_overall(found)], about)]
    gaps = [(each.name, each.gap) for each in found.trials if each.gap]
    parts = [Section(name, [_waterfall(found, gap)]) for name, gap in gaps]
    if parts:
        built.append(Section("Where the difference comes from", parts, _ABOUT_PHASES, folded=True))
    names_of_sides = (found.first.name, found.second.name)
    built += [part for each in found.trials if (part := part_section(each, names_of_sides))]
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
    return _single(trial, f"{found.first.name} (the baseline)", found.second.name, _chance(found, trial))


def _single(trial: ChangeOfTrial, first: str, second: str, chance: str) -> str:
    """Return what is known of one trial; ``chance`` is what would decide a threshold that is undecided."""
    ratio = trial.ratio
    if trial.verdict == "slower":
        known = f"{second} is slower than {first}: {_in_time(ratio)}{_showable(trial)}"
    elif trial.verdict == "faster":
        speedup = times(1.0 / ratio.value, 1.0 / (ratio.high or 1.0), 1.0 / (ratio.low or 1.0)).line
        known = f"{second} is faster than {first}, speed-up {speedup}{_showable(trial)}"
    elif trial.verdict == "no difference":
        limit = _share(trial.smallest_change)
        known = f"no difference larger than {limit} between {first} and {second} ({change(ratio).line})"
    else:
        seen = f"{second} took {_more_or_less(trial)} than {first}"
        known = f"{_UNDECIDED}{seen}, but {_lacking(trial, decides=not chance)}"
    return f"{known}{chance}: {trial.name}"


def _showable(trial: ChangeOfTrial) -> str:
    """Return how small a change such launches show; empty where they show large ones alone."""
    smallest = trial.smallest_change
    known = smallest is not None and smallest <= MOST_EXCLUDED
    return f"; such launches show changes from {_share(smallest)} on" if known else ""


def _chance(report: ChangeReport, trial: ChangeOfTrial) -> str:
    """Return how little launches could show of a threshold that is undecided, and how many would; else nothing."""
    if trial.outcome != "undecided" or report.threshold is None or not _could_be_more(trial):
        return ""
    chance = percent(trial.power_at_threshold, None, None).text
    more = trial.launches_to_threshold
    needed = f"about {count(more, 'more launch')} of each" if more else "more launches of each"
    return f"; the chance to show {_share(report.threshold)} was {chance}, and {needed} would make it 80 %"


def _could_be_more(trial: ChangeOfTrial) -> bool:
    """Whether more launches, and nothing else, decide."""
    return max(trial.launches) > 1 and (trial.verdict != "undecided" or bool(trial.interleaved))


def _in_time(ratio: IntervalOverLaunches) -> str:
    shown = change(ratio)
    return f"{shown.line} of step time" if shown.text.endswith("%") else f"its step time is {shown.line}"


def _more_or_less(trial: ChangeOfTrial) -> str:
    """Return ``62 % less time (-80 to -21)``, or ``5.00x as much time`` where percentages would be above 300.

    Sides that took no turns have no interval that would hold what the machine did in between.
    """
    ratio = trial.ratio
    if ratio.value - 1.0 > MOST_PERCENT:
        return f"{number(ratio.value)}x as much time"
    size = percent(abs(ratio.value - 1.0), None, None).text
    known = trial.interleaved and ratio.low is not None and is_settled(ratio)
    interval = f" ({change(ratio).interval})" if known else ""
    return f"{size} {'more' if ratio.value > 1.0 else 'less'} time{interval}"


def _lacking(trial: ChangeOfTrial, *, decides: bool = True) -> str:
    """Return why a trial is undecided, and what would decide it."""
    if max(trial.launches) == 1:
        return "one run each cannot exclude chance; repeat each 3 times"
    if not trial.interleaved:
        return "the sides did not take turns, so the machine may have changed in between; run them in turns"
    seen = f"launches ranged from {number(trial.ratio.least or 0.0)}x to {number(trial.ratio.most or 0.0)}x the time"
    more = trial.launches_to_decide
    needed = f"about {count(more, 'more launch')} of each would decide" if more else "more launches of each are needed"
    return f"{seen}; {needed}" if decides else seen


def _outcome(found: ChangeReport) -> str:
    if found.threshold is None:
        return ""
    limit = f"slower by more than {_share(found.threshold)}"
    if found.outcome == "failed":
        return f"FAILED, {limit}: "
    slower = (each.ratio.low or 0.0 for each in found.trials if each.verdict == "slower")
    if any(low > 1.0 + found.threshold for low in slower):
        usual, gate = (f"{100 * level:.0f} %" for level in (found.level, found.gate_level))
        return f"not failed, since it is {limit} with a confidence of {usual} and a gate asks for {gate}: "
    if found.outcome == "undecided":
        own = [each for each in found.trials if each.outcome == "undecided"]
        if len(found.trials) == 1:
            return f"undecided, neither shown nor excluded to be {limit}: "
        chance = next(filter(None, (_chance(found, each) for each in own)), "")
        return f"undecided, {len(own)} of {len(found.trials)} neither shown nor excluded to be {limit}{chance}: "
    return f"passed, none shown to be {limit}: "


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
        columns += [
            Column(f"chance to\nshow {limit}"),
            Column("more launches\nfor 80 %"),
            Column("fails with\n80 % from"),
        ]
    rows = [TableRow(each.name, _cells(found, each)) for each in found.trials]
    return SectionTable(columns, rows, "trial", layouts=("wide", "stacked"), label="Trials")


def _cells(found: ChangeReport, trial: ChangeOfTrial) -> list[Cell]:
    factor, unit = time_unit(trial.first_step_s)
    first, second = (f"{number(each * factor)} {unit}" for each in (trial.first_step_s, trial.second_step_s))
    verdict: ChangeVerdict = "undecided" if trial.outcome == "undecided" else trial.verdict
    shown = [
        Cell("FAILED" if trial.fails else verdict, style=_STYLES[verdict]),
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
        rows.append(TableRow(TITLES[name], cells(_added(part, unit), _share_of(start, part))))
    rows.append(TableRow("step", cells(_added(gap.step_s, unit), _share_of(start, gap.step_s)), best=True))
    return SectionTable(
        [Column("difference"), Column("of the baseline's step")], rows, "phase", layouts=("wide", "stacked")
    )


def _added(part: Difference, unit: tuple[float, str]) -> Shown:
    shown = seconds_apart(part.value_s, part.low_s, part.high_s, unit)
    return Shown(
        signed(shown.text),
        " to ".join(map(signed, shown.interval.split(" to "))) if part.low_s is not None else shown.interval,
    )


def _share_of(start: float, part: Difference) -> str:
    """Return a difference as a share of the first step, with the digits that its interval allows."""
    bounds = (None if each is None else each / start for each in (part.low_s, part.high_s))
    return signed(percent_apart(part.value_s / start, *bounds).text)


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
    if len(trials) == 1:
        return list(marks)
    return [f"{mark} ({'all' if len(own) == len(trials) else '; '.join(own)})" for mark, own in marks.items()]


def _share(value: float | None) -> str:
    if value is not None and value > MOST_PERCENT:
        return f"a factor of {number(1.0 + value)}"
    return percent(value, None, None).text


_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
_LEVELS = 6
"""Of headings."""


def markdown(headline: str, sections: Iterable[Section]) -> str:
    """Return a headline in bold and sections below it; what a page folds is folded here, and figures are left out."""
    blocks = [f"**{_escaped(headline)}**"]
    for section in sections:
        blocks += _section(section, 3)
    return "\n\n".join(blocks)


def _section(section: Section, level: int) -> Iterator[str]:
    title = _escaped(section.title)
    if section.folded:
        yield f"<details><summary>{title}</summary>"
    else:
        yield f"{'#' * min(level, _LEVELS)} {title}"
    if section.verdict:
        yield f"**{_escaped(section.verdict)}**"
    for part in section.within("terminal"):
        yield from _section(part, level + 1) if isinstance(part, Section) else _part(part)
    if section.note:
        yield f"<sub>{_escaped(section.note)}</sub>"
    if section.folded:
        yield "</details>"


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Sentences):
        texts = [_escaped(text) for text in part.texts]
        yield "\n".join(f"- {text}" for text in texts) if part.listed else "\n\n".join(texts)
    elif isinstance(part, Pairs):
        yield "\n".join(f"- {_escaped(name)}: {_escaped(value)}" for name, value in part.pairs)
    elif isinstance(part, SectionTable):
        yield "\n".join(_table(part))
    elif isinstance(part, Verbatim):
        yield textwrap.indent(part.text, "    ")


def _table(table: SectionTable) -> Iterator[str]:
    shown = table.columns_of("page")
    titles = [table.names, *(column.title.replace("\n", " ") for _, column in shown)]
    yield _row(titles)
    yield _row(["---", *("---:" if column.kind == "number" else "---" for _, column in shown)], escape=False)
    for row in table.rows:
        name = f"**{_escaped(row.name)}**" if row.best else _escaped(row.name)
        yield _row([name, *(_escaped(row.cells[index].line) for index, _ in shown)], escape=False)


def _row(texts: Iterable[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escaped(text) if escape else text for text in texts)} |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def junit(found: ChangeReport) -> str:
    """Return the test suite of a comparison.

    A trial that is shown to be slower by more than the threshold is a failure, one that only the second side failed
    to measure an error, and one that is undecided, or without a counterpart, is skipped.
    """
    broken = sum(each.broken for each in found.unpaired)
    undecided = sum(each.outcome == "undecided" for each in found.trials)
    counts = {
        "tests": len(found.trials) + len(found.unpaired),
        "failures": sum(each.fails for each in found.trials),
        "errors": broken,
        "skipped": len(found.unpaired) - broken + undecided,
    }
    suites = Element("testsuites", {name: str(number) for name, number in counts.items()})
    suite = SubElement(suites, "testsuite", {"name": "steptime compare", **suites.attrib})
    properties = SubElement(suite, "properties")
    settings = {"baseline": found.first.source, "compared": found.second.source, "level": str(found.level)}
    for name, value in {**settings, "threshold": str(found.threshold), "verdict": headline(found)}.items():
        SubElement(properties, "property", {"name": name, "value": plain_text(value)})
    for trial in found.trials:
        _trial(suite, found, trial)
    sides = {"first": found.first.name, "second": found.second.name}
    for each in found.unpaired:
        case = SubElement(suite, "testcase", {"classname": plain_text(sides[each.side]), "name": plain_text(each.name)})
        SubElement(case, "error" if each.broken else "skipped", {"message": plain_text(each.reason)})
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _trial(suite: Element, found: ChangeReport, trial: ChangeOfTrial) -> None:
    sides = f"{found.second.name} against {found.first.name}"
    case = SubElement(suite, "testcase", {"classname": plain_text(sides), "name": plain_text(trial.name)})
    sentence = plain_text(in_a_sentence(found, trial))
    properties = SubElement(case, "properties")
    numbers = {
        "ratio": trial.ratio.value,
        "low": trial.ratio.low,
        "high": trial.ratio.high,
        "smallest_change": trial.smallest_change,
    }
    for name, value in numbers.items():
        SubElement(properties, "property", {"name": name, "value": "unknown" if value is None else f"{value:.6g}"})
    if trial.fails:
        SubElement(case, "failure", {"message": sentence, "type": trial.verdict})
    elif trial.outcome == "undecided":
        SubElement(case, "skipped", {"message": sentence})
    else:
        SubElement(case, "system-out").text = sentence
