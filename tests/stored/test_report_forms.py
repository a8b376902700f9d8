"""``report --format``, ``--figures`` and ``--reference``: the forms that other programs read, of stored studies."""

import csv
import io
import json
import re
from xml.etree import ElementTree as ET

import pytest
from stored_studies import output_of, unpacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of four frameworks with breakdowns, and the profile that was fitted to it."""
    return unpacked("four-frameworks", tmp_path_factory.mktemp("forms"))


@pytest.fixture(scope="module")
def summary(folder):
    return json.loads(output_of("report", str(folder), "--json"))


@pytest.fixture(scope="module")
def figures(folder, tmp_path_factory):
    """The folder into which figures were written."""
    target = tmp_path_factory.mktemp("figures")
    output_of("report", str(folder), "--figures", str(target))
    return target


def test_csv_has_the_throughput_of_every_ranked_trial(folder, summary):
    rows = list(csv.DictReader(io.StringIO(output_of("report", str(folder), "--format", "csv"))))
    shown = [row for row in rows if row["section"] == "Rankings" and row["column"] == "samples/s"]
    assert len(shown) == len(summary["ranking"])
    assert all(row["value"] and row["interval"] for row in shown)


def test_latex_opens_and_closes_each_table_and_escapes_what_it_must(folder):
    text = output_of("report", str(folder), "--format", "latex")
    tables = text.count("\\begin{tabular}")
    assert tables > 3
    assert tables == text.count("\\end{tabular}") == text.count("\\caption{") == text.count("\\midrule")
    bodies = re.sub(r"\\[&%$#_{}]", "", text.partition("\n")[2])
    assert not re.search(r"[%$#]", bodies)


def test_every_row_of_a_latex_table_has_as_many_cells_as_its_head(folder):
    text = re.sub(r"\\&", "", output_of("report", str(folder), "--format", "latex"))
    for table in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        cells = {line.count("&") for line in table.splitlines() if line.endswith(r"\\")}
        assert len(cells) == 1, table


def test_markdown_begins_with_the_answer(folder):
    first, *rest = output_of("report", str(folder), "--format", "markdown").splitlines()
    assert "cannot be distinguished" in first or "fastest" in first
    assert any(line.startswith("|") for line in rest)


def test_json_is_that_of_the_option_json(folder, summary):
    assert json.loads(output_of("report", str(folder), "--format", "json")) == summary


def test_every_figure_has_four_files(figures):
    names = {path.stem for path in figures.iterdir()}
    assert len(names) > 3
    assert {path.name for path in figures.iterdir()} == {
        f"{n}.{e}" for n in names for e in ("svg", "png", "pdf", "txt")
    }


def test_figures_are_what_their_endings_say(figures):
    begins = {"png": b"\x89PNG", "pdf": b"%PDF"}
    for path in figures.iterdir():
        if start := begins.get(path.suffix[1:]):
            assert path.read_bytes().startswith(start)
    assert all(ET.parse(path).getroot().tag.endswith("svg") for path in figures.glob("*.svg"))  # noqa: S314 - our own


def test_captions_state_the_machine(figures):
    assert all("measured on" in path.read_text() for path in figures.glob("*.txt"))


def test_a_profile_of_another_machine_is_what_steps_are_compared_with(folder, summary):
    """Here of the same one: its own measurements are in it, so that hardly a step is unexpected."""
    profile = folder.with_name("study.profile.json")
    found = json.loads(output_of("report", str(folder), "--json", "--reference", str(profile)))["diagnosis"]["expected"]
    judged = [each["judgement"] for each in found if each["judgement"]]
    assert {each["source"] for each in found} != {each["source"] for each in summary["diagnosis"]["expected"]}
    assert judged.count("as expected") >= 0.8 * len(judged) > 0
