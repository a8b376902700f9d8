"""Reports in the forms of other programs: Markdown, CSV and LaTeX of sections, and figures as files.

The report as one HTML page that needs nothing else: no script, no other file, no connection.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import steptime
from steptime.analysis.summary_form import Summary
from steptime.extras import require_extra, why_absent
from steptime.plain_file import write_whole
from steptime.report.advice import largest_finding
from steptime.report.answer import first_answer, in_order, paper_line
from steptime.report.charts.chart import Figure
from steptime.report.conditions import machine_in_a_line
from steptime.report.groups import MOST_ANSWERS
from steptime.report.overview import sentences, verdicts
from steptime.report.plain_text import plain_text
from steptime.report.section import Column, Figures, Part, Section, SectionTable, TableRow
from steptime.report.sections import StudyFindings, sections
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store
from steptime.statistics.estimate import step_time_quantiles

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 80
_SCALE = 2.0
"""Pixels of a PNG for each of the picture's own."""


def csv_of(sections: Iterable[Section]) -> str:
    """Return every number of the tables: a row for each cell, with its section, table, row, column and interval."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["section", "table", "row", "column", "value", "interval", "note"])
    for section in sections:
        for title, table in _tables(section):
            for row, column, index in _cells(table):
                cell = row.cells[index]
                heading = column.title.replace("\n", " ")
                writer.writerow([section.title, title, row.name, heading, cell.text, cell.interval, cell.note])
    return file.getvalue()


def latex_of(sections: Iterable[Section]) -> str:
    """Return the tables for LaTeX with the package booktabs, each with its section as caption."""
    blocks = [
        block for section in sections for title, table in _tables(section) for block in _latex(section, title, table)
    ]
    return "\n".join(["% \\usepackage{booktabs}", *blocks])


def _latex(section: Section, title: str, table: SectionTable) -> Iterator[str]:
    shown = table.columns_of("page")
    kinds = "l" + "".join("r" if column.kind == "number" else "l" for _, column in shown)
    yield "\\begin{table}\n\\centering"
    yield f"\\caption{{{_escaped(': '.join(dict.fromkeys((section.title, title))))}}}"
    yield f"\\begin{{tabular}}{{{kinds}}}\n\\toprule"
    yield _row([table.names, *(column.title.replace("\n", " ") for _, column in shown)])
    yield "\\midrule"
    for row in table.rows:
        yield _row([row.name, *(row.cells[index].line for index, _ in shown)])
    yield "\\bottomrule\n\\end{tabular}\n\\end{table}"


def _row(texts: Iterable[str]) -> str:
    return " & ".join(map(_escaped, texts)) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _tables(section: Section, above: str = "") -> Iterator[tuple[str, SectionTable]]:
    title = f"{above}, {section.title}" if above else section.title
    for part in section.parts:
        if isinstance(part, SectionTable) and part.rows:
            yield title, part
        elif isinstance(part, Section):
            yield from _tables(part, "" if not above else title)


def _cells(table: SectionTable) -> Iterator[tuple[TableRow, Column, int]]:
    for row in table.rows:
        for index, column in table.columns_of("page"):
            yield row, column, index


def write_figures(summary: Summary, sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write every figure as SVG, PNG and PDF, with a caption that states its conditions; return the paths.

    Raises StoreError when a file cannot be written, and MissingExtra without what draws.
    """
    require_extra("page")
    import vl_convert  # noqa: PLC0415 - as in charts

    machine = machine_in_a_line(summary.machine)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    taken: set[str] = set()
    for section, note, figure in [each for own in sections for each in _figures(own, own)]:
        name = _name(f"{section.id or section.title}-{figure.title}", taken)
        svg = str(figure.svg)
        captions = [figure.title, figure.note, note, section.note, f"{summary.study}, measured on {machine}."]
        texts: dict[str, bytes] = {
            "svg": svg.encode(),
            "png": vl_convert.svg_to_png(svg, scale=_SCALE),
            "pdf": vl_convert.svg_to_pdf(svg),
            "txt": (" ".join(f"{each.rstrip('.')}." for each in captions if each) + "\n").encode(),
        }
        for ending, content in texts.items():
            path = folder / f"{name}.{ending}"
            write_whole(path, content)
            written.append(path)
    return written


def _figures(top: Section, part: Part) -> Iterator[tuple[Section, str, Figure]]:
    if isinstance(part, Figures):
        yield from ((top, part.note, figure) for figure in part.draw())
    elif isinstance(part, Section):
        for each in part.parts:
            yield from _figures(top, each)


def _name(title: str, taken: set[str]) -> str:
    """Return a file's name of plain letters that no other figure has."""
    name = _NOT_IN_NAMES.sub("-", title.lower()).strip("-")[:_LONGEST_NAME] or "figure"
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def write_page(store: Store, found: StudyFindings, path: Path, *, notice: str = "") -> None:
    """Write the page of ``store`` and what was found to ``path``, whole or not at all; ``notice`` is its first line.

    Folders above ``path`` are made. Raises StoreError when the page cannot be written.
    """
    store.folder_around(path).write(path, page_of(store, found, notice=notice).encode())


def page_of(store: Store, found: StudyFindings, *, notice: str = "", refresh_s: int | None = None) -> str:
    """Return the page of ``store``, with its study and step times beside what was found; as ``page_text``."""
    ranked = {place.trial for place in found.summary.ranking}
    quantiles = {
        trial.id: step_time_quantiles(store.iter_records(TIMING, trial.id), trial.strategy)
        for trial in found.summary.trials
        if trial.id in ranked
    }
    whole = replace(found, quantiles=quantiles, study_text=store.study_text)
    return page_text(whole, str(store.path), notice=notice, refresh_s=refresh_s)


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
    return _page(
        sections(found),
        title=summary.study,
        question=summary.question,
        notice=notice,
        refresh_s=refresh_s,
        answers=_answers(found, ranked),
        answered=[text for _, text in ranked],
        paper=paper_line(summary),
        machine=machine_in_a_line(summary.machine),
        origin=f"from the results in {folder}.",
        json_command=f"steptime report {folder} --json",
    )


def sections_page(shown: Sequence[Section], title: str, command: str) -> str:
    """Return a page of sections that are not of a results folder; ``command`` made it."""
    return _page(
        shown,
        title=title,
        question="",
        notice="",
        refresh_s=None,
        answers=[],
        answered=[],
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
    page = environment.get_template("page.html.j2").render(
        without_pictures=undrawn or "",
        version=steptime.__version__,
        sections=[section for section in shown if section.is_within("page")],
        **values,
    )
    return plain_text(page)


def _answers(found: StudyFindings, ranked: Sequence[tuple[str, str]]) -> list[str]:
    """Return the first screen: the study's answer, who is fastest by which ratio, and the largest finding."""
    summary, diagnosis = found.summary, found.diagnosis
    called = {each.id: found.names.full(each) for each in summary.trials}
    largest = largest_finding(diagnosis, called) if diagnosis else ""
    fastest = [f"{label}: {text}" if label else text for label, text in ranked] or sentences(summary)
    return [each for each in in_order(summary, first_answer(summary), [*fastest, largest]) if each]
