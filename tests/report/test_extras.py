"""Verbs whose libraries are extras, on a machine without these."""

import subprocess
import sys

import pytest
from summaries import quickstart
from test_charts import quantiles_of

from steptime import api
from steptime.extras import EXTRAS, MissingExtra, require_extra, why_absent
from steptime.report.figure_files import write_figures
from steptime.report.page import page_text
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


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Return the current folder, which Python looks in first, as it does for `python -m` and in a notebook."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    tops = {extra.module.partition(".")[0] for extra in EXTRAS.values()}
    for module in [name for name in sys.modules if name.partition(".")[0] in tops]:
        monkeypatch.delitem(sys.modules, module)
    return tmp_path


@pytest.mark.parametrize("name", EXTRAS)
def test_a_folder_with_the_name_of_a_library_is_not_taken_for_it(name, here, monkeypatch):
    (here / EXTRAS[name].module.replace(".", "/") / "results").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [""])
    wanted = f"need the extra '{name}': pip install 'steptime[{name}]' (in a checkout '.[{name}]')"
    assert why_absent(name).endswith(wanted)


@pytest.mark.parametrize("form", ["{}/__init__.py", "{}.py"])
@pytest.mark.parametrize("name", EXTRAS)
def test_a_module_of_the_user_s_own_that_hides_a_library_is_named_and_not_run(name, form, here):
    own = here / form.format(EXTRAS[name].module.partition(".")[0])
    own.parent.mkdir(exist_ok=True)
    own.write_text("raise SystemExit('of the user')\n")
    hiding = own.parent if own.name == "__init__.py" else own
    assert f"Python takes {hiding} for its {EXTRAS[name].module}: start steptime in another folder" in why_absent(name)


@pytest.mark.parametrize("name", ["export", "page"])
def test_an_installed_library_is_found_beside_a_folder_of_its_name(name, here):
    (here / EXTRAS[name].module).mkdir()
    assert why_absent(name) is None


def test_a_page_without_its_extra_has_every_table_and_no_picture(without):
    study = quickstart()

    page = page_text(StudyFindings(study, quantiles=quantiles_of(study)), "results")

    assert "<svg" not in page
    assert "Pictures need the extra" in page
    assert "pytorch allreduce is fastest" in page


LIMITED = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 30,) * 2); "
WHY = LIMITED + "from steptime.extras import why_absent; print(why_absent('page'))"
DRAWN = LIMITED + (
    "from steptime.document.charts.chart import to_svg; "
    "print(len(to_svg({'data': {'values': [{'a': 1}]}, 'mark': 'point', '$schema': "
    "'https://vega.github.io/schema/vega-lite/v5.json'}, 'a')))"
)


def under(code, limit_gib):
    return subprocess.run(
        [sys.executable, "-c", code, str(limit_gib)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("limit_gib", [4, 64, 127])
def test_pictures_are_left_out_where_a_limit_of_addresses_would_end_the_process(limit_gib):
    assert "Pictures need 128 GiB of addresses, not memory: ulimit -v unlimited" in under(WHY, limit_gib).stdout


def test_what_is_asked_for_suffices():
    needed = EXTRAS["page"].address_space >> 30
    assert under(WHY, needed).stdout == "None\n"
    assert int(under(DRAWN, needed).stdout) > 0


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
