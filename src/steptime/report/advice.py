"""Findings and the advice that follows: what is wrong, what to change, what that gains, and whether it did."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from steptime.analysis.summary_form import Summary
from steptime.attached.form import AttachedRun
from steptime.diagnosis.form import Diagnosis, EvidenceNumber, RuleRecord, TrialFinding, Unsettled
from steptime.diagnosis.verification import AdviceOutcome
from steptime.document.number_format import UNKNOWN, count, gain_doubt, number, percent, predicted_gain, seconds, times
from steptime.document.section import Cell, Column, Part, Section, SectionTable, Sentences, TableRow
from steptime.report.attached import delayed_sentence
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval
from steptime.units import is_undecided

_MOST_SHOWN = 40
_ABOUT = (
    "Each rule looks at one number and speaks where its whole 95 % interval is above a limit. A gain is samples per "
    "second with the change over those without, with an interval of 90 %; where nothing is known of how much a change "
    "removes, anything from none to all is taken to be as likely. steptime advise DIR --verify measures it."
)
_ABOUT_VERIFIED = (
    "Measured with and without the change in the same randomised blocks: samples per second with it over those without."
)
_MIB = 1024**2
_FINDING_COLUMNS = ("finding", "change", "predicted gain", "evidence", "would disprove it", "record")
_GAIN = _FINDING_COLUMNS.index("predicted gain")
_LIMIT = ", not shown to be above "
"""Behind the number in the reason of a rule that is undecided."""


def advice_section(summary: Summary, diagnosis: Diagnosis, names: Names) -> Section:
    """Return the findings of a study, certain gains before possible ones, and the rules that noise keeps silent."""
    called = {trial.id: names.full(trial) for trial in summary.trials}
    rows = [_row(each, called.get(each.trial, each.trial)) for each in diagnosis.findings[:_MOST_SHOWN]]
    parts: list[Part] = []
    if rows:
        merged = _merged(diagnosis.findings[:_MOST_SHOWN], called)
        parts += [replace(_findings_table(rows), only="terminal"), replace(_findings_table(merged), only="page")]
    if not rows:
        broken = any(trial.breakdown for trial in summary.trials)
        why = "No rule found anything." if broken else "Without a breakdown no rule about phases can speak."
        parts.append(Sentences([why]))
    left = len(diagnosis.findings) - len(rows)
    more = [f"{count(left, 'further finding')} of smaller or less sure gain: steptime report --json."] if left else []
    parts.append(Sentences(more, "dim"))
    if diagnosis.unsettled:
        title = f"{count(len(diagnosis.unsettled), 'rule')} that noise leaves undecided"
        parts.append(Section(title, [Sentences(_doubts(diagnosis.unsettled, called), "dim")], folded=True))
    return Section("Findings", parts, _ABOUT, id="findings")


def script_section(run: AttachedRun, diagnosis: Diagnosis) -> Section:
    """Return the findings about a user's own script, behind what a run that failed or was not seen leaves unknown."""
    failed = [f"{each.sentence[:1].upper()}{each.sentence[1:]}." for each in run.findings if each.kind == "failed"]
    rows = [_row(each, each.trial) for each in diagnosis.findings]
    steps = f"{count(run.steps, 'step')} measured{' before that' if failed else ''}"
    if not run.steps:
        known = f"No step was measured, so no rule had anything to look at: {run.not_attached or 'no step was whole'}."
    elif rows:
        known = f"The findings are of the {steps}." if failed else ""
    else:
        known = f"No rule found anything in the {steps}."
    delayed = delayed_sentence(run) if rows else ""
    usual = run.steps and not failed and not delayed
    limits = Sentences([each for each in (*failed, known, delayed) if each], "" if usual else "warning")
    return Section("Findings", [limits, *([_findings_table(rows)] if rows else [])], _ABOUT if rows else "")


def largest_finding(diagnosis: Diagnosis, called: Mapping[str, str]) -> str:
    """Return the finding with the largest gain in a sentence; empty without any that has one."""
    found = next((each for each in diagnosis.findings if each.gain.value is not None), None)
    return "" if found is None else f"Largest finding: {finding_sentence(found, called.get(found.trial, found.trial))}"


def finding_sentence(found: TrialFinding, called: str) -> str:
    """Return a finding in a sentence."""
    gain = found.gain
    predicted = f"; {predicted_gain(gain.value, gain.low, gain.high)}" if gain.value is not None else ""
    pasted = f" [{' '.join(found.overrides)}]" if found.overrides else ""
    return f"{called}: {found.claim}. {found.change[:1].upper()}{found.change[1:]}{pasted}{predicted}."


def _doubts(undecided: Sequence[Unsettled], called: Mapping[str, str]) -> list[str]:
    """Return why each rule is undecided, once for the trials that it is undecided of for the same reason."""
    alike: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for each in undecided:
        title, _, bounds = each.reason.partition(": ")
        shown, parted, rest = bounds.partition(_LIMIT)
        common = (each.rule, title, f"{_LIMIT}{rest}" if parted else each.trial)
        alike.setdefault(common, []).append((called[each.trial], shown if parted else each.reason))
    lines = []
    for (rule, title, rest), trials in alike.items():
        limit = rest if rest.startswith(_LIMIT) else ""
        if len(trials) == 1:
            name, shown = trials[0]
            lines.append(f"{name}, {rule}: {f'{title}: {shown}{limit}' if limit else shown}.")
        else:
            of_trials = "; ".join(f"{name}: {shown}" for name, shown in trials)
            lines.append(f"{rule}, {title}{limit}. {of_trials}.")
    return lines


def _merged(findings: Sequence[TrialFinding], called: Mapping[str, str]) -> list[TableRow]:
    """Return a row for each finding; trials of which a rule finds the same, with the same advice, share one."""
    alike: dict[tuple[Cell | str, ...], list[tuple[TableRow, TrialFinding]]] = {}
    for each in findings:
        row = _row(each, called.get(each.trial, each.trial))
        claimed = each.gain.value is not None and not is_undecided(each.gain.low, each.gain.high)
        doubt = row.cells[_GAIN].note if claimed else each.trial
        alike.setdefault((doubt, *(cell for cell in row.cells if cell is not row.cells[_GAIN])), []).append((row, each))
    rows = []
    for same in alike.values():
        gain = _gains([each.gain for _, each in same]) if len(same) > 1 else None
        if gain is None:
            rows += [row for row, _ in same]
        else:
            first, *others = [row for row, _ in same]
            shown = [*first.cells[:_GAIN], replace(gain, note=first.cells[_GAIN].note), *first.cells[_GAIN + 1 :]]
            rows.append(replace(first, cells=shown, under=[row.name for row in others]))
    return rows


def _gains(gains: Sequence[Interval[float | None]]) -> Cell | None:
    """Return the smallest and the largest gain with what holds the intervals of all; None if that is too wide."""
    smallest, *_, largest = sorted(gains, key=lambda gain: gain.value or 0.0)
    low = min((each.low for each in gains if each.low is not None), default=None)
    high = max((each.high for each in gains if each.high is not None), default=None)
    if low is None or high is None or is_undecided(low, high):
        return None
    texts = dict.fromkeys(_gain(each).text for each in (smallest, largest))
    return Cell(" to ".join(texts), times(largest.value, low, high).interval)


def _findings_table(rows: Sequence[TableRow]) -> SectionTable:
    columns = [Column(title, "number" if title == "predicted gain" else "prose") for title in _FINDING_COLUMNS]
    return SectionTable(columns, rows, "trial", label="Findings")


def _row(found: TrialFinding, called: str) -> TableRow:
    evidence = "; ".join(f"{each.what} {_value(each)}" for each in found.evidence)
    record = record_in_a_line(found.record)
    shown = [
        Cell(found.claim),
        Cell(found.change, note=" ".join(found.overrides)),
        _gain(found.gain),
        Cell(evidence),
        Cell(found.disproof),
        Cell(record),
    ]
    history = f"{record[0].upper()}{record[1:]}."
    sentence = f"{finding_sentence(found, called)} Evidence: {evidence}. Wrong if: {found.disproof}. {history}"
    return TableRow(called, shown, sentence=sentence)


def _gain(gain: Interval[float | None]) -> Cell:
    if gain.value is None:
        return Cell(UNKNOWN)
    return Cell(*times(gain.value, gain.low, gain.high), note=gain_doubt(gain.low, gain.high))


def record_in_a_line(record: RuleRecord) -> str:
    """``verified 7 times: helped in 5 of 6 measurable cases, gain inside in 6, median error 4 %``."""
    if not record.verified:
        return "this rule was never verified"
    error = f", median error {100 * (record.median_error or 0.0):.0f} %"
    cases = count(record.shown, "measurable case")
    sign = f"helped in {record.sign_right} of {cases}, " if record.shown else ""
    return f"verified {count(record.verified, 'time')}: {sign}gain inside its interval in {record.inside}{error}"


def _value(each: EvidenceNumber) -> str:
    found = each.value
    if each.unit == "share":
        return percent(found.value, found.low, found.high).line if found.low != found.high else _exact(found.value)
    if each.unit == "seconds":
        return seconds(found.value, found.low, found.high).line
    if each.unit == "bytes":
        return f"{number(found.value / _MIB)} MiB"
    return number(found.value)


def _exact(share: float) -> str:
    return percent(share, None, None).text


def outcome_section(outcomes: Sequence[AdviceOutcome]) -> Section:
    """Return what verifications measured beside what was predicted."""
    columns = [Column("change", "prose"), Column("predicted gain"), Column("measured gain"), Column("verdict", "prose")]
    rows = [_outcome(each) for each in outcomes]
    return Section("Verified", [SectionTable(columns, rows, "trial", label="Verified advice")], _ABOUT_VERIFIED)


def _outcome(outcome: AdviceOutcome) -> TableRow:
    finding, row = outcome.finding, outcome.row
    change, gain = " ".join(finding.overrides) or outcome.changed, finding.gain
    if row is None:
        unknown = [Cell(change), _gain(gain), Cell(UNKNOWN), Cell(outcome.reason or "")]
        return TableRow(finding.trial, unknown)
    verdict = "no difference was shown" if not row.shown else "a gain" if row.measured > 1.0 else "a loss"
    off = "more than predicted" if row.measured > (gain.value or 0.0) else "less than predicted"
    verdict += ", as predicted" if row.inside else f", {off}"
    measured = times(row.measured, row.measured_low, row.measured_high)
    return TableRow(finding.trial, [Cell(change), _gain(gain), Cell(*measured), Cell(verdict)])
