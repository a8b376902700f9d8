"""A comparison as JUnit XML, which continuous integration shows as tests: one for each trial that both sides have."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from steptime.measurements.compared.form import ChangeOfTrial, ChangeReport
from steptime.report.changes import headline, in_a_sentence
from steptime.report.plain_text import plain_text


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
