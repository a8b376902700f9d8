"""Findings and the advice that follows: what is wrong, what to change, what that gains, and whether it did."""

from collections.abc import Mapping, Sequence

from steptime.analysis.summary_form import Summary
from steptime.attached.form import AttachedRun
from steptime.diagnosis.form import (
    Diagnosis,
    EvidenceNumber,
    RuleRecord,
    TrialFinding,
)
from steptime.diagnosis.verification import AdviceOutcome
from steptime.document.number_format import (
    UNKNOWN,
    count,
    gain_doubt,
    number,
    percent,
    predicted_gain,
    seconds,
    times,
)
from steptime.document.section import Cell, Column, Part, Section, SectionTable, Sentences, TableRow
from steptime.report.trial_names import Names
from steptime.results.json_form import Interval

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


def advice_section(summary: Summary, diagnosis: Diagnosis, names: Names) -> Section:
    """Return the findings of a study, certain gains before possible ones, and the rules that noise keeps silent."""
    called = {trial.id: names.full(trial) for trial in summary.trials}
    rows = [_row(each, called.get(each.trial, each.trial)) for each in diagnosis.findings[:_MOST_SHOWN]]
    parts: list[Part] = [_findings_table(rows)] if rows else []
    if not rows:
        broken = any(trial.breakdown for trial in summary.trials)
        why = "No rule found anything." if broken else "Without a breakdown no rule about phases can speak."
        parts.append(Sentences([why]))
    left = len(diagnosis.findings) - len(rows)
    doubts = [f"{called[each.trial]}, {each.rule}: {each.reason}." for each in diagnosis.unsettled]
    more = [f"{count(left, 'further finding')} of smaller or less sure gain: steptime report --json."] if left else []
    parts.append(Sentences(more, "dim"))
    if doubts:
        title = f"{count(len(doubts), 'rule')} that noise leaves undecided"
        parts.append(Section(title, [Sentences(doubts, "dim")], folded=True))
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
    limits = Sentences([*failed, *([known] if known else [])], "" if run.steps and not failed else "warning")
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


def _findings_table(rows: Sequence[TableRow]) -> SectionTable:
    columns = [Column(title, "prose") for title in ("finding", "change", "evidence", "would disprove it", "record")]
    columns.insert(2, Column("predicted gain"))
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
    verdict += ", inside the prediction" if row.inside else ", outside the prediction"
    measured = times(row.measured, row.measured_low, row.measured_high)
    return TableRow(finding.trial, [Cell(change), _gain(gain), Cell(*measured), Cell(verdict)])
