"""The report as one HTML page that needs nothing else: no script, no other file, no connection."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import steptime
from steptime.diagnosis.form import Diagnosis
from steptime.measurements.attached.form import AttachedRun
from steptime.measurements.estimate import step_time_quantiles
from steptime.measurements.net.form import NetSummary
from steptime.measurements.record_kinds import TIMING
from steptime.measurements.store import Store
from steptime.measurements.summary_form import Summary
from steptime.report.advice import largest_finding
from steptime.report.answer import answers_first, first_answer, paper_line
from steptime.report.conditions import machine_in_a_line
from steptime.report.overview import sentences
from steptime.report.plain_text import plain_text
from steptime.report.ranking import Quantiles
from steptime.report.sections import StudyFindings, sections
from steptime.report.trial_names import Names


def write_page(  # noqa: PLR0913 - as page_text
    store: Store,
    summary: Summary,
    path: Path,
    net: NetSummary | None = None,
    *,
    attached: AttachedRun | None = None,
    diagnosis: Diagnosis | None = None,
    notice: str = "",
) -> None:
    """Write the page of ``store`` and its ``summary`` to ``path``, whole or not at all; ``notice`` is its first line.

    Folders above ``path`` are made. Raises StoreError when the page cannot be written.
    """
    page = page_of(store, summary, net, attached=attached, diagnosis=diagnosis, notice=notice)
    store.folder_around(path).write(path, page.encode())


def page_of(  # noqa: PLR0913 - as page_text
    store: Store,
    summary: Summary,
    net: NetSummary | None = None,
    *,
    attached: AttachedRun | None = None,
    diagnosis: Diagnosis | None = None,
    notice: str = "",
    refresh_s: int | None = None,
) -> str:
    """Return the page of ``store`` and its ``summary``; the rest is as in ``page_text``."""
    ranked = {place.trial for place in summary.ranking}
    quantiles = {
        trial.id: step_time_quantiles(store.iter_records(TIMING, trial.id), trial.strategy)
        for trial in summary.trials
        if trial.id in ranked
    }
    return page_text(
        summary,
        quantiles,
        store.study_text,
        str(store.path),
        net,
        attached=attached,
        diagnosis=diagnosis,
        notice=notice,
        refresh_s=refresh_s,
    )


def page_text(  # noqa: PLR0913 - everything that is on the page
    summary: Summary,
    quantiles: Quantiles,
    study_text: str,
    folder: str,
    net: NetSummary | None = None,
    *,
    attached: AttachedRun | None = None,
    diagnosis: Diagnosis | None = None,
    notice: str = "",
    refresh_s: int | None = None,
) -> str:
    """Return the page.

    Args:
        summary: the study and everything that it found.
        quantiles: of the step times of trials that have any.
        study_text: the study file, word by word.
        folder: where the results are, for the reader.
        net: what the network benchmark found, if it was run into the same folder.
        attached: what the run of a user's own command found, if the folder is of one.
        diagnosis: what the rules say of its trials.
        notice: a sentence above everything else.
        refresh_s: after how many seconds a browser asks for it again; None if never.
    """
    environment = Environment(
        loader=PackageLoader("steptime.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.j2").render(
        summary=summary,
        notice=notice,
        refresh_s=refresh_s,
        version=steptime.__version__,
        folder=folder,
        answers=_answers(summary, diagnosis),
        paper=paper_line(summary),
        machine=machine_in_a_line(summary.machine),
        sections=[
            section
            for section in sections(StudyFindings(summary, net, quantiles, study_text, attached, diagnosis))
            if section.is_within("page")
        ],
    )
    return plain_text(page)


def _answers(summary: Summary, diagnosis: Diagnosis | None) -> list[str]:
    """Return the first screen: the study's answer, who is fastest by which ratio, and the largest finding."""
    names = Names(summary.trials)
    called = {each.id: names.full(each) for each in summary.trials}
    largest = largest_finding(diagnosis, called) if diagnosis else ""
    said = (first_answer(summary), *sentences(summary), largest)
    return [each for each in (said if answers_first(summary) else (*said[1:], said[0])) if each]
