"""The equivalence checks as a section: which passed, by how much, and which failed."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from steptime.analysis.summary_form import EquivalenceSummary, TrialSummary
from steptime.document.number_format import count, distance, whole
from steptime.document.section import Cell, Column, Section, SectionTable, Sentences, Style, TableRow
from steptime.report.trial_names import check_name
from steptime.report.unranked import LEFT_OUT, status_in_words


def passed_checks(checks: Sequence[EquivalenceSummary]) -> str:
    """``Equivalence check: 8 of 9 checks passed (4 checked on 2026-11-27, kept)``."""
    days = sorted(filter(None, map(_kept_on, checks)))
    kept = f" ({len(days)} checked on {' to '.join(dict.fromkeys([days[0], days[-1]]))}, kept)" if days else ""
    return f"Equivalence check: {sum(each.passed for each in checks)} of {count(len(checks), 'check')} passed{kept}"


def _kept_on(check: EquivalenceSummary) -> str | None:
    """Return the day of a check that an earlier run had made; None of one that was made for the study."""
    return check.checked_at[:10] if check.kept and check.checked_at else None


_NOT_CHECKED = "The equivalence check was not run: these trials may train different things."
_NONE_ENDED = "No equivalence check has ended, and no trial was launched."


def not_checked(trials: Sequence[TrialSummary]) -> str:
    """Return the sentence about results without a check; where nothing was launched, nothing may differ either."""
    return _NONE_ENDED if trials and all(status_in_words(each) in LEFT_OUT for each in trials) else _NOT_CHECKED


_ABOUT_CHECKS = (
    "Before anything is ranked, every framework trains the same workload from the same weights on the same batches, "
    "and is compared with a plain numpy reference. Gradients and updates of every round of steps must be those of the "
    "reference, but for rounding. What does not pass is not ranked."
)
_ABOUT_DISTANCES = (
    "Losses, weights and updates are relative distances from the reference. Its rounding is the distance of its "
    "updates in single precision from those in double precision, which no framework can better. A dash marks where "
    "nothing is compared."
)
_DISTANCES = ("first loss", "last loss", "gradients", "updates", "rounding of\nthe reference")


def failed_checks(checks: Sequence[EquivalenceSummary]) -> list[str]:
    """Return a line for each check that did not pass."""
    return [
        f"not passed: {check_name(check, checks)}, {check.workload}, {count(check.workers, 'worker')}: {check.reason}"
        for check in checks
        if not check.passed
    ]


def equivalence_section(checks: Sequence[EquivalenceSummary], trials: Sequence[TrialSummary]) -> Section:
    """Return what passed the equivalence check, and how far each check is from the reference."""
    if not checks:
        return Section("Equivalence check", [Sentences([not_checked(trials)], "bad")], id="equivalence")
    failed = failed_checks(checks)
    crashed = [
        f"{check_name(check, checks)}, {check.workload}: {count(check.crashes, 'run')} died of a signal and passed "
        "when repeated"
        for check in checks
        if check.crashes and check.passed
    ]
    columns = [Column("result", "prose" if failed else "text"), Column("workload", "text")]
    columns += [Column(title) for title in ("workers", "steps", "parameters", *_DISTANCES)]
    day, rate = (_shared(checks, word) for word in (_made, _learning_rate))
    rows = [
        TableRow(check_name(check, checks), _check_cells(check, day, rate), under=[check.framework_version])
        for check in checks
    ]
    parts = [
        Sentences([*failed, *crashed], "bad", only="terminal"),
        SectionTable(columns, rows, label="Checks of the equivalence check", only="page"),
        Sentences([f"{_ABOUT_DISTANCES} {_shared_sentence(day, rate)}".rstrip()], "dim", only="page"),
    ]
    style: Style = "bad" if failed else "good"
    return Section(passed_checks(checks), parts, _ABOUT_CHECKS, style=style, id="equivalence")


def _shared(checks: Sequence[EquivalenceSummary], word: Callable[[EquivalenceSummary], str]) -> str:
    """Return what a word of all checks is, which is then shown once; empty where they differ."""
    words = {*map(word, checks)}
    return words.pop() if len(words) == 1 else ""


def _shared_sentence(day: str, rate: str) -> str:
    """``All were checked on 2026-11-29, with learning rate 0.01.``; empty where checks share neither."""
    parts = [day, f"with {rate}" if rate else ""]
    return f"All were {', '.join(filter(None, parts))}." if day else f"All were made with {rate}." if rate else ""


def _made(check: EquivalenceSummary) -> str:
    if not check.checked_at:
        return ""
    return f"checked on {check.checked_at[:10]}" + (", kept" if check.kept else "")


def _learning_rate(check: EquivalenceSummary) -> str:
    return f"learning rate {check.learning_rate:g}" if check.learning_rate else ""


def _check_cells(check: EquivalenceSummary, day: str, rate: str) -> list[Cell]:
    """Return the cells of a row, without the day and the learning rate that all have, if they do."""
    passed = Cell("passed", style="good")
    result = passed if check.passed else Cell(f"not passed: {check.reason or 'no reason known'}", style="bad")
    if not day:
        result = replace(result, note=_made(check))
    steps = [
        f"{check.repeats} times" if check.repeats > 1 else "",
        f"{check.rounds} rounds" if check.rounds else "",
        "" if rate else _learning_rate(check),
        f"{count(check.crashes, 'crash')} repeated" if check.crashes else "",
    ]
    differs = check.parameters != check.parameters_expected
    errors = (check.first_loss_error, check.last_loss_error, check.gradient_error, check.update_error)
    return [
        result,
        Cell(check.workload),
        Cell(str(check.workers)),
        Cell(str(check.steps), note=", ".join(filter(None, steps))),
        Cell(whole(check.parameters), note=f"expected {whole(check.parameters_expected)}" if differs else ""),
        *(Cell(distance(error)) for error in (*errors, check.update_rounding)),
    ]
