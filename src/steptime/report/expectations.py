"""Measured steps against expected ones, and whole jobs."""

from collections.abc import Sequence

from steptime.analysis.summary_form import Summary
from steptime.attached.job_time import JOB_TITLES
from steptime.diagnosis.form import ExpectedStep, JobAccount
from steptime.document.number_format import UNKNOWN, percent, seconds, times
from steptime.document.section import Cell, Column, Section, SectionTable, Sentences, TableRow
from steptime.phases import PHASES
from steptime.report.trial_names import Names

_ABOUT_EXPECTED = (
    "The expectation has an interval of 90 %; the ratio is measured over expected, with an interval of 95 % that holds "
    "what both leave open. Expectations by the folder's own profile are made without the trial itself."
)


_TITLES = {phase.name: phase.title for phase in PHASES}


_JOB_USES = {**JOB_TITLES, "compilation": "compilation and caches", "steps": "steps"}


def expected_section(summary: Summary, expected: Sequence[ExpectedStep], names: Names) -> Section | None:
    """Return measured steps beside their expectations; None if nothing expects any."""
    if not any(each.judgement for each in expected):
        return None
    trials = {trial.id: trial for trial in summary.trials}
    columns = [Column("measured"), Column("expected"), Column("ratio"), Column("judgement", "prose")]
    rows, judged = [], []
    without: dict[str, list[str]] = {}
    for each in expected:
        trial = trials[each.trial]
        time = trial.step_time_s
        band, ratio = each.expected_s, each.ratio
        shown = [Cell(*seconds(time.mean, time.low, time.high))]
        if each.judgement is None:
            without.setdefault(each.reason or "", []).append(names.full(trial))
            shown += [Cell(UNKNOWN), Cell(UNKNOWN), Cell(f"no expectation: {each.reason}")]
        else:
            shown += [Cell(*seconds(band.value, band.low, band.high)), Cell(*times(ratio.value, ratio.low, ratio.high))]
            shown.append(Cell(judgement_in_words(each), style="bad" if each.judgement == "slower" else ""))
        rows.append(TableRow(names.full(trial), shown, sentence=f"{names.full(trial)}: {shown[-1].text}"))
        judged += [] if each.judgement is None else [rows[-1]]
    source = f"By {expected[0].source}. "
    parts = [
        SectionTable(columns, rows, "trial", only="terminal"),
        SectionTable(columns, judged, "trial", label="Expected and measured", only="page"),
        Sentences([f"No expectation of {'; '.join(of)}: {why}." for why, of in without.items()], only="page"),
    ]
    return Section("Expected and measured", parts, source + _ABOUT_EXPECTED, id="expected")


def judgement_in_words(each: ExpectedStep) -> str:
    """``slower: takes 1.4x (1.2 to 1.6) the expected time: exposed communication explains it``."""
    if each.judgement is None:
        return f"no expectation: {each.reason}"
    if each.judgement == "as expected":
        return "as expected"
    ratio = times(each.ratio.value, each.ratio.low, each.ratio.high).line
    why = f": {_TITLES.get(each.phase, each.phase)} explains it" if each.phase else ""
    return f"{each.judgement}: takes {ratio} the expected time{why}"


_ABOUT_OTHERWISE = (
    "From the start of the command to its end, on the mean worker. Goodput is the share of it that is steps which "
    "count, with an interval over seeds; it is that of ml-goodput-measurement, and not that of Pollux, which weighs "
    "throughput by how much a step teaches. Waiting for input is within the steps of a training."
)


def account_section(summary: Summary, accounts: Sequence[JobAccount], names: Names) -> Section | None:
    """Return the accounts of trainings; None without any. That of a user's own script is in its own section."""
    trials = {trial.id: trial for trial in summary.trials}
    own = [each for each in accounts if each.trial in trials]
    if not own:
        return None
    uses = list(dict.fromkeys(use.name for each in own for use in each.uses))
    columns = [Column("goodput"), Column("whole job"), *(Column(_JOB_USES.get(name, name)) for name in uses)]
    rows = []
    for each in own:
        shares = {use.name: use for use in each.uses}
        goodput = percent(each.goodput.value, each.goodput.low, each.goodput.high)
        cells = [Cell(*goodput), Cell(seconds(each.total_s, None, None).text)]
        for name in uses:
            use = shares.get(name)
            shown = f"{100 * use.share:.1f} %" if use else UNKNOWN
            cells.append(Cell(shown, note=seconds(use.seconds, None, None).text if use else ""))
        rows.append(TableRow(names.full(trials[each.trial or ""]), cells))
    table = SectionTable(columns, rows, "training", ("stacked",), label="Whole jobs")
    return Section("Where the whole job's time goes", [table], _ABOUT_OTHERWISE, id="jobs")
