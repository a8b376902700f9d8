"""Trials without a place in the ranking, and why."""

from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.document.number_format import count, samples_per_s
from steptime.document.section import Cell, Column, Part, Section, SectionTable, Sentences, TableRow
from steptime.report.trial_names import Names


def unranked(summary: Summary) -> list[TrialSummary]:
    """Return the trials that have no place in any ranking."""
    ranked = {place.trial for place in summary.ranking} | {place.trial for place in summary.accuracy}
    return [trial for trial in summary.trials if trial.id not in ranked]


def unranked_section(summary: Summary, names: Names) -> Section | None:
    """Return the trials without a rank and the combinations that cannot be; None if there are neither."""
    trials = unranked(summary)
    parts: list[Part] = []
    if trials:
        columns = [Column("status", "text"), Column("launches"), Column("why", "prose")]
        rows = [TableRow(names.full(trial), _unranked_cells(trial)) for trial in trials]
        parts = [
            SectionTable(columns, rows, "trial", label="Trials without a rank", only="page"),
            Sentences(unranked_in_words(summary, names), "bad", only="terminal"),
        ]
    if summary.skipped:
        parts.append(
            Section("Skipped, because they cannot be", [Sentences(summary.skipped, "dim", listed=True)]),
        )
    title = f"Without a rank: {count(len(trials), 'trial')}" if trials else "Without a rank"
    return Section(title, parts, id="unranked") if parts else None


def _unranked_cells(trial: TrialSummary) -> list[Cell]:
    failed = f"{trial.failed_launches} failed" if trial.failed_launches else ""
    status = Cell(status_in_words(trial), style="bad")
    return [status, Cell(str(trial.launches), note=failed), Cell(reason_and_rate(trial))]


def reason_and_rate(trial: TrialSummary) -> str:
    """Return why a trial has no rank, and how fast it was where it was measured."""
    rate = trial.throughput_samples_per_s
    measured = f"; {samples_per_s(rate)}" if trial.status == "unranked" and rate.value is not None else ""
    return (trial.reason or "no reason known") + measured


def unranked_in_words(summary: Summary, names: Names) -> list[str]:
    """Return a line for each reason why trials have no rank, with the trials that it holds back."""
    held: dict[tuple[str, str], list[str]] = {}
    for trial in unranked(summary):
        reason = reason_and_rate(trial)
        status = status_in_words(trial)
        held.setdefault(("" if reason.startswith(status) else f"{status}: ", reason), []).append(names.full(trial))
    return [
        f"{status}{found[0]}: {reason}"
        if len(found) == 1
        else f"{status}{len(found)} trials: {reason}: {'; '.join(found)}"
        for (status, reason), found in held.items()
    ]


def status_in_words(trial: TrialSummary) -> str:
    """Return the status of a trial without a rank; one that the budget left out has not failed."""
    left_out = [words for words in LEFT_OUT if (trial.reason or "").startswith(words)]
    return left_out[0] if left_out else trial.status.replace("_", " ")


LEFT_OUT = ("not run", "not finished", "not ranked")
