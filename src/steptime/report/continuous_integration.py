"""A comparison for continuous integration: Markdown for a comment below a change, and JUnit XML for a list of tests."""

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from steptime.measurements.compared.form import ChangeOfTrial, ChangeReport
from steptime.report.changes import headline, in_a_sentence
from steptime.report.plain_text import plain_text
from steptime.report.section import Pairs, Part, Section, SectionTable, Sentences

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
_LEVELS = 6
"""Of headings."""


def markdown(headline: str, sections: Iterable[Section]) -> str:
    """Return a headline in bold and sections below it; what a page folds is folded here, and figures are left out."""
    blocks = [f"**{_escaped(headline)}**"]
    for section in sections:
        blocks += _section(section, 3)
    return "\n\n".join(blocks)


def _section(section: Section, level: int) -> Iterator[str]:
    title = _escaped(section.title)
    if section.folded:
        yield f"<details><summary>{title}</summary>"
    else:
        yield f"{'#' * min(level, _LEVELS)} {title}"
    if section.verdict:
        yield f"**{_escaped(section.verdict)}**"
    for part in section.within("terminal"):
        yield from _section(part, level + 1) if isinstance(part, Section) else _part(part)
    if section.note:
        yield f"<sub>{_escaped(section.note)}</sub>"
    if section.folded:
        yield "</details>"


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Sentences):
        texts = [_escaped(text) for text in part.texts]
        yield "\n".join(f"- {text}" for text in texts) if part.listed else "\n\n".join(texts)
    elif isinstance(part, Pairs):
        yield "\n".join(f"- {_escaped(name)}: {_escaped(value)}" for name, value in part.pairs)
    elif isinstance(part, SectionTable):
        yield "\n".join(_table(part))


def _table(table: SectionTable) -> Iterator[str]:
    shown = table.columns_of("page")
    titles = [table.names, *(column.title.replace("\n", " ") for _, column in shown)]
    yield _row(titles)
    yield _row(["---", *("---:" if column.kind == "number" else "---" for _, column in shown)], escape=False)
    for row in table.rows:
        name = f"**{_escaped(row.name)}**" if row.best else _escaped(row.name)
        yield _row([name, *(_escaped(row.cells[index].line) for index, _ in shown)], escape=False)


def _row(texts: Iterable[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escaped(text) if escape else text for text in texts)} |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def junit(found: ChangeReport) -> str:
    """Return the test suite of a comparison.

    A trial that is shown to be slower by more than the threshold is a failure, one that only the second side failed
    to measure an error, and one without a counterpart is skipped.
    """
    broken = sum(each.broken for each in found.unpaired)
    counts = {
        "tests": len(found.trials) + len(found.unpaired),
        "failures": sum(each.fails for each in found.trials),
        "errors": broken,
        "skipped": len(found.unpaired) - broken,
    }
    suites = Element("testsuites", {name: str(number) for name, number in counts.items()})
    suite = SubElement(suites, "testsuite", {"name": "steptime compare", **suites.attrib})
    properties = SubElement(suite, "properties")
    settings = {"baseline": found.first.source, "compared": found.second.source, "level": str(found.level)}
    for name, value in {**settings, "threshold": str(found.threshold), "verdict": headline(found)}.items():
        SubElement(properties, "property", {"name": name, "value": plain_text(value)})
    for trial in found.trials:
        _trial(suite, found, trial)
    sides = {"first": found.first.name, "second": found.second.name}
    for each in found.unpaired:
        case = SubElement(suite, "testcase", {"classname": plain_text(sides[each.side]), "name": plain_text(each.name)})
        SubElement(case, "error" if each.broken else "skipped", {"message": plain_text(each.reason)})
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _trial(suite: Element, found: ChangeReport, trial: ChangeOfTrial) -> None:
    sides = f"{found.second.name} against {found.first.name}"
    case = SubElement(suite, "testcase", {"classname": plain_text(sides), "name": plain_text(trial.name)})
    sentence = plain_text(in_a_sentence(found, trial))
    properties = SubElement(case, "properties")
    numbers = {
        "ratio": trial.ratio.value,
        "low": trial.ratio.low,
        "high": trial.ratio.high,
        "smallest_change": trial.smallest_change,
    }
    for name, value in numbers.items():
        SubElement(properties, "property", {"name": name, "value": "unknown" if value is None else f"{value:.6g}"})
    if trial.fails:
        SubElement(case, "failure", {"message": sentence, "type": trial.verdict})
    else:
        SubElement(case, "system-out").text = sentence
