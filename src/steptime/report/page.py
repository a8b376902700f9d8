"""The report as one HTML page that needs nothing else: no script, no other file, no connection."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import steptime
from steptime.document.plain_text import plain_text
from steptime.document.section import ANSWER, Section
from steptime.extras import why_absent
from steptime.report.advice import largest_finding
from steptime.report.answer import first_answer, in_order, paper_line
from steptime.report.conditions import machine_in_a_line
from steptime.report.groups import MOST_ANSWERS
from steptime.report.overview import Verdict, scaling_sentences, sentences, verdicts
from steptime.report.sections import EXPLAINED, StudyFindings, sections
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.statistics.estimate import step_time_quantiles
from steptime.user_output import PAGE, write_user_file

_MOST_PARAGRAPHS = 3
"""Of an answer, before a page folds what is not of the most workers."""


def write_page(store: Store, found: StudyFindings, path: Path, *, notice: str = "") -> None:
    """Write the page of ``store`` and what was found to ``path``, whole or not at all; ``notice`` is its first line.

    Folders above ``path`` are made. Raises StoreError when the page cannot be written.
    """
    write_user_file(path, page_of(store, found, notice=notice).encode(), PAGE, store.folder_around(path))


def page_of(store: Store, found: StudyFindings, *, notice: str = "", refresh_s: int | None = None) -> str:
    """Return the page of ``store``, with its study and step times beside what was found; as ``page_text``."""
    ranked = {place.trial for place in found.summary.ranking}
    quantiles = {
        trial.id: step_time_quantiles(store.iter_records(TIMING, trial.id), trial.strategy)
        for trial in found.summary.trials
        if trial.id in ranked
    }
    whole = replace(found, quantiles=quantiles, study_text=store.study_text)
    return page_text(whole, found.origin or str(store.path), notice=notice, refresh_s=refresh_s)


def page_text(found: StudyFindings, folder: str, *, notice: str = "", refresh_s: int | None = None) -> str:
    """Return the page.

    Args:
        found: everything that is on it.
        folder: where the results are, for the reader.
        notice: a sentence above everything else.
        refresh_s: after how many seconds a browser asks for it again; None if never.
    """
    summary = found.summary
    ranked = verdicts(found.groups)
    ranked = ranked if len(ranked) <= MOST_ANSWERS else []
    shown = sections(found)
    of_command = shown[0].verdict if found.has_no_trials else ""
    answers, further = _answers(found, ranked)
    return _page(
        shown,
        title=summary.study,
        question=summary.question,
        notice=notice,
        refresh_s=refresh_s,
        answers=[*([of_command] if of_command else []), *answers],
        further=further,
        is_whole=False,
        answered=[of_command, *(each.text for each in ranked)],
        paper=paper_line(summary),
        machine=machine_in_a_line(summary.machine),
        origin=f"from the results in {folder}.",
        json_command=f"steptime report {folder} --json",
    )


def sections_page(shown: Sequence[Section], title: str, command: str) -> str:
    """Return a page of sections that are not of a results folder; ``command`` made it.

    It begins with what the first of them answer, or with the one answer to all of them.
    """
    whole = [section for section in shown if section.id == ANSWER]
    answered = whole or [section for section in shown if section.verdict][:MOST_ANSWERS]
    several = len(answered) > 1
    return _page(
        shown,
        title=title,
        question="",
        notice="",
        refresh_s=None,
        answers=[
            f"{each.title}: {line}" if several else line for each in answered for line in each.verdict.splitlines()
        ],
        further=[],
        answered=[each.verdict for each in answered],
        is_whole=True,
        paper="",
        machine="",
        origin=f"by: {command}",
        json_command="",
    )


def _page(shown: Sequence[Section], *, answered: Sequence[str], **values: object) -> str:
    environment = Environment(
        loader=PackageLoader("steptime.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    undrawn = why_absent("page")
    environment.globals["is_drawn"] = undrawn is None  # macros see no other values of the page
    environment.globals["answered"] = answered
    explained = EXPLAINED if any(section.id == "reading" for section in shown) else ()
    environment.globals["is_explained"] = lambda title: any(
        f"{title} ".replace("\n", " ").startswith(f"{each} ") for each in explained
    )
    page = environment.get_template("page.html.j2").render(
        without_pictures=undrawn or "",
        version=steptime.__version__,
        sections=[section for section in shown if section.is_within("page")],
        **values,
    )
    return plain_text(page)


def _answers(found: StudyFindings, ranked: Sequence[Verdict]) -> tuple[list[str], list[str]]:
    """Return the answer of the first screen, and what is folded below it.

    All of it is there if it is short; else who is fastest with the most workers by which ratio to the next.
    """
    summary, diagnosis = found.summary, found.diagnosis
    called = {each.id: found.names.full(each) for each in summary.trials}
    largest = largest_finding(diagnosis, called) if diagnosis else ""
    first = first_answer(summary)
    fastest = [each.line(each.text) for each in ranked] or sentences(summary)
    more = scaling_sentences(found.groups) if ranked else []
    whole = [each for each in in_order(summary, first, [*fastest, *more, largest]) if each]
    if not ranked or len(whole) <= _MOST_PARAGRAPHS:
        return whole, []
    leading, further = [], []
    for each in ranked:
        sentence, _, rest = each.text.partition(". ")
        if each.leads:
            leading.append(each.line(f"{sentence}." if rest else sentence))
            further += [each.line(rest)] if rest else []
        else:
            further.append(each.line(each.text))
    shown = [each for each in in_order(summary, first, leading) if each]
    return shown, [*further, *more, *([largest] if largest else [])]
