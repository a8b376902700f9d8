"""What a study answers beside who is fastest.

Whether published claims hold here, and how far; which training is the most accurate; what performance models explain;
what is predicted; and where this machine differs so much from that of a claim that the comparison means little.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

from steptime.analysis.summary_form import PublishedRatio, Summary
from steptime.document.number_format import count, listed, number, percent, published, ratio
from steptime.document.section import Cell, Column, Section, SectionTable, TableRow
from steptime.report.forecasts.models import model_sentences
from steptime.report.learning.accuracy import AccuracyGroup, accuracy_groups
from steptime.results.json_form import IntervalOverLaunches

_LITTLE = 0.1
"""A share of a step that no faster loader can save more than."""
Line = TypeVar("Line")


def answer(summary: Summary, *, models: bool = True) -> str:
    """Return the paragraph; empty for a study without claims, trainings to compare, models and predictions.

    Args:
        summary: the study.
        models: whether what models explain and predict is part of it.
    """
    learned = [sentence for group in accuracy_groups(summary) for sentence in _learned(group)]
    if not (summary.published or learned or (models and (summary.models or summary.prediction))):
        return ""
    verdicts = (_verdict(found) for found in summary.published)
    explained = model_sentences(summary) if models else ()
    return " ".join([*verdicts, *learned, *explained, *_differences(summary)])


def first_answer(summary: Summary) -> str:
    """Return the paragraph for the beginning of a report; what models explain is there if a paper's study asks it."""
    return answer(summary, models=summary.paper is not None)


def in_order(summary: Summary, said: Line, others: Sequence[Line]) -> list[Line]:
    """Return the first lines of a report as they follow each other.

    Args:
        summary: the study; one that follows a paper asks what that claims.
        said: its ``first_answer``.
        others: who is fastest, and the largest finding.
    """
    return [*others, said] if summary.paper is None else [said, *others]


def paper_line(summary: Summary) -> str:
    """Return the paper that the study follows; empty where it follows none."""
    paper = summary.paper
    return "" if paper is None else f"after {paper.authors}, “{paper.title}”, {paper.year}, {paper.address}"


_ABOUT_PUBLISHED = (
    "Ratios of times that others published, on other machines and versions, and the same ratios here: the geometric "
    "mean over pairs of trials of one group. The interval holds what launches leave open; the smallest and largest "
    "pair show how much workloads differ."
)


def published_section(summary: Summary) -> Section | None:
    """Return published ratios beside measured ones; None of a study without any."""
    columns = [Column("published"), Column("measured"), Column("pairs"), Column("source", "prose")]
    rows = [_published_row(found) for found in summary.published]
    table = SectionTable(columns, rows, "claim", label="Published ratios and measured ones")
    title = "Published and measured"
    return Section(title, [table], _ABOUT_PUBLISHED, id="published") if rows else None


def _published_row(found: PublishedRatio) -> TableRow:
    claimed = "direction only" if found.published is None else f"{number(found.published)}x"
    measured = ratio(IntervalOverLaunches(**asdict(found.measured), least=found.least, most=found.most))
    several = found.pairs > 1 and found.least is not None and found.most is not None
    spread = f"{number(found.least or 0.0)}x to {number(found.most or 0.0)}x" if several else ""
    shown = [Cell(claimed), Cell(*measured), Cell(str(found.pairs), note=spread), Cell(found.source)]
    return TableRow(found.claim, shown, sentence=f"{found.claim}: {published(found)} [{found.source}]")


def _verdict(found: PublishedRatio) -> str:
    claim = found.claim.rstrip(".")
    known = (
        f"published {number(found.published)}x" if found.published is not None else "published without a number here"
    )
    measured = found.measured
    if not found.pairs or found.least is None or found.most is None or measured.low is None or measured.high is None:
        return f"{claim}: nothing measured here to compare it with ({known})."
    shown = ratio(IntervalOverLaunches(**asdict(measured), least=found.least, most=found.most)).line
    pairs = count(found.pairs, "pair")
    if measured.low > 1.0:
        return f"{claim}: that holds here, by {shown} over {pairs} of trials ({known})."
    if measured.high < 1.0:
        return f"{claim}: that does not hold here; the ratio is {shown} over {pairs} of trials ({known})."
    return f"{claim}: that is not shown here; the ratio is {shown} over {pairs} of trials ({known})."


def _learned(group: AccuracyGroup) -> Iterator[str]:
    """Yield which training is the best of several, how many are tied with it, and whose schedules these have."""
    best, *others = group.rows
    if not others:
        return
    tied = sum(row.leads for row in others)
    behind = f"of the {len(others)} others {tied} {'is' if tied == 1 else 'are'} tied with it"
    if tied in {0, len(others)}:
        behind = f"all {len(others)} others are {'tied with' if tied else 'behind'} it"
    yield f"{group.title}: the best is {best.name}, final {best.final}; {behind}."
    schedules = list(dict.fromkeys(row.found.schedule for row in group.rows))
    leading = list(dict.fromkeys(row.found.schedule for row in group.rows if row.leads))
    if len(schedules) > 1 and leading == schedules:
        yield "No learning-rate schedule is shown to be better than the others."
    elif len(schedules) > 1:
        last = [name for name in schedules if name not in leading]
        yield f"Learning-rate schedules of the best and those tied with it: {listed(leading)}; behind: {listed(last)}."


def _differences(summary: Summary) -> Iterator[str]:
    predicted = summary.prediction.published if summary.prediction else []
    machines = dict.fromkeys(
        machine
        for machine in (*(found.machine for found in summary.published), *(point.machine for point in predicted))
        if machine
    )
    if machines:
        here = ", ".join(dict.fromkeys(f"{trial.device} devices" for trial in summary.trials))
        most = max((trial.workers for trial in summary.trials), default=0)
        yield f"Published on {'; '.join(machines)}; measured here with at most {count(most, 'worker')} on {here}."
    yield from _shared_cores(summary)
    shares = [row.waited_share for verdict in summary.loaders for row in verdict.rows if row.waited_share]
    if shares and all(share.high is not None and share.high < _LITTLE for share in shares):
        largest = max(shares, key=lambda share: share.value)
        yield (
            f"Training limits here, not loading: at most {percent(largest.value, largest.low, largest.high).line} of a "
            "step waits for its batch, so that no loader can save more, and what the claims say of loaders on faster "
            "devices cannot be seen on this machine; the loader verdict gives the device speed from which it would be."
        )


def _shared_cores(summary: Summary) -> Iterator[str]:
    """Yield what emulated hosts that share this machine's cores leave open."""
    cores = summary.machine.get("cores")
    measured = [trial for trial in summary.trials if trial.status == "ok"]
    emulated = [trial for trial in measured if trial.cluster is not None and trial.cluster.kind == "emulated"]
    crowded = sorted({trial.workers for trial in emulated if cores and trial.workers + trial.servers > cores})
    if crowded:
        yield (
            f"Trials of {listed([str(workers) for workers in crowded])} workers have more processes than this machine "
            f"has cores ({cores}), which take turns: of separate hosts their steps say nothing."
        )
    if emulated and (summary.models or summary.prediction):
        yield "Hosts are emulated on one machine, so that ratios to a cluster of separate hosts with GPUs mean little."
