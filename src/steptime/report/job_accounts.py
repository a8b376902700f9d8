"""Where the whole time of jobs goes."""

from collections.abc import Sequence

from steptime.diagnosis.form import JobAccount
from steptime.measurements.summary_form import Summary
from steptime.report.attached import JOB_TITLES
from steptime.report.number_format import UNKNOWN, percent, seconds
from steptime.report.section import Cell, Column, Section, SectionTable, TableRow
from steptime.report.trial_names import Names

_ABOUT = (
    "From the start of the command to its end, on the mean worker. Goodput is the share of it that is steps which "
    "count, with an interval over seeds; it is that of ml-goodput-measurement, and not that of Pollux, which weighs "
    "throughput by how much a step teaches. Waiting for input is within the steps of a training."
)
_TITLES = {**JOB_TITLES, "compilation": "compilation and caches", "steps": "steps"}


def account_section(summary: Summary, accounts: Sequence[JobAccount], names: Names) -> Section | None:
    """Return the accounts of trainings; None without any. That of a user's own script is in its own section."""
    trials = {trial.id: trial for trial in summary.trials}
    own = [each for each in accounts if each.trial in trials]
    if not own:
        return None
    uses = list(dict.fromkeys(use.name for each in own for use in each.uses))
    columns = [Column("goodput"), Column("whole job"), *(Column(_TITLES.get(name, name)) for name in uses)]
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
    return Section("Where the whole job's time goes", [table], _ABOUT, id="jobs", link="Whole jobs")
