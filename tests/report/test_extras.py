"""Verbs whose libraries are extras, on a machine without these."""

import sys

import pytest
from summaries import quickstart
from test_charts import quantiles_of

from steptime import api
from steptime.extras import EXTRAS, MissingExtra, require_extra
from steptime.report.formats import page_text, write_figures
from steptime.report.sections import StudyFindings


@pytest.fixture
def without(monkeypatch):
    """Hide the libraries of all extras."""
    for extra in EXTRAS.values():
        monkeypatch.setitem(sys.modules, extra.module, None)


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.usefixtures("without")
def test_an_absent_extra_is_named_with_the_command_that_installs_it(name):
    with pytest.raises(MissingExtra, match=rf"pip install 'steptime\[{name}\]'"):
        require_extra(name)


def test_a_page_without_its_extra_has_every_table_and_no_picture(without):
    study = quickstart()

    page = page_text(StudyFindings(study, quantiles=quantiles_of(study)), "results")

    assert "<svg" not in page
    assert "Pictures need the extra" in page
    assert "pytorch allreduce is fastest" in page


def test_a_page_with_its_extra_does_not_name_it():
    study = quickstart()

    page = page_text(StudyFindings(study, quantiles=quantiles_of(study)), "results")

    assert "<svg" in page
    assert "need the extra" not in page


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda folder: write_figures(quickstart(), [], folder), id="figures"),
        pytest.param(api.read_results, id="read_results"),
    ],
)
@pytest.mark.usefixtures("without")
def test_what_cannot_do_without_an_extra_refuses_before_it_writes(use, tmp_path):
    folder = tmp_path / "new"

    with pytest.raises(MissingExtra):
        use(folder)
    assert not folder.exists()
