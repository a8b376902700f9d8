"""Every section of a stored study is in the report of a terminal and on the page."""

import io

import pytest
from stored_studies import STUDIES, unpacked

from steptime.analysis.summary import summarise
from steptime.cli.console import PlainConsole
from steptime.model.measured_links import stored_links
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings, WholeReport, sections
from steptime.report.terminal import SectionText
from steptime.results.store import Store


def printed(renderable):
    console = PlainConsole(file=io.StringIO(), width=200)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture(scope="module", params=STUDIES)
def stored(request, tmp_path_factory):
    """The sections, the page and the terminal's report of a stored study."""
    store = Store.open(unpacked(request.param, tmp_path_factory.mktemp("stored")))
    summary, net = summarise(store), stored_links(store)
    page = page_text(StudyFindings(summary, net, study_text=store.study_text), "results")
    return sections(StudyFindings(summary, net)), page, printed(WholeReport(StudyFindings(summary, net)))


@pytest.mark.sampled
def test_every_section_of_a_stored_study_is_on_its_page(stored):
    found, page, _ = stored
    for section in found:
        assert (f'<section id="{section.id}">' in page) == section.is_within("page")


@pytest.mark.sampled
def test_every_section_of_a_stored_study_is_in_its_terminals_report(stored):
    found, _, text = stored
    for section in found:
        assert printed(SectionText([section])).strip() in text


@pytest.mark.sampled
def test_a_terminal_leaves_nothing_but_curves_and_conditions_to_the_page(stored):
    found, _, _ = stored
    assert {section.id for section in found if not section.is_within("terminal")} <= {"scaling", "conditions"}
