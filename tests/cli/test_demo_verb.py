"""``steptime demo``: recorded results, marked as such, and the commands that go on from them."""

import json
import re
import shlex

import pytest
from program import steptime

from steptime.cli.demo import RECORDING, recorded_files

MARK = "Recorded on AMD EPYC, 2 cores, 23.5 GiB, Debian GNU/Linux 12 (bookworm), 2026-11-29."
MOST_BYTES = 800_000
"""Of a wheel that the recording may take."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder in which the demo was run, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, steptime("demo", cwd=folder).stdout


def commands(text: str) -> list[list[str]]:
    """Return the words of the commands that stand behind the last 'Next:'."""
    return [shlex.split(line, comments=True) for line in text.rpartition("\nNext:\n")[2].splitlines()]


def test_it_begins_with_the_machine_and_the_day_of_the_recording(shown):
    assert shown[1].startswith(MARK)


def test_it_shows_ranking_breakdown_and_prediction(shown):
    text = shown[1]

    assert "tensorflow allreduce" in text
    assert "Where the time of a step goes" in text
    assert re.search(
        r"Predicted for more hosts, pytorch allreduce: 16\s+workers on 8\s+hosts.* a step\s+takes", text, re.DOTALL
    )


def test_its_forecast_names_what_decides_it(shown):
    assert re.search(r"What\s+decides\s+most\s+is\s+the\s+bandwidth\s+inside\s+a\s+host\s+\(measured\)", shown[1])


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [80, 120])
def test_its_first_look_is_answer_ranking_and_one_table_on_two_screens_at_most(tmp_path, columns):
    text = steptime("demo", cwd=tmp_path, COLUMNS=str(columns)).stdout

    assert len(text.splitlines()) <= 68
    assert not re.search(r"\bPOP\b|\bKnee\b|\b[Ee]xtrapolation", text)


@pytest.mark.costly
def test_it_ends_with_three_commands_of_which_those_that_read_results_work(shown):
    folder, text = shown

    race, *readers = commands(text)
    assert race == ["steptime", "run", "quickstart"]
    assert [words[:2] for words in readers] == [["steptime", "report"], ["steptime", "predict"]]
    for words in readers:
        steptime(*words[1:], cwd=folder)


@pytest.fixture(scope="module")
def reported(shown):
    """The JSON of a report of the same results, whose page is ``other.html``."""
    words = ["report", "steptime-demo/four-frameworks", "--json", "--html", "other.html"]
    return json.loads(steptime(*words, cwd=shown[0]).stdout)


@pytest.mark.costly
@pytest.mark.usefixtures("reported")
def test_its_page_is_that_of_any_report_with_the_mark_above(shown):
    folder, _ = shown
    clips = re.compile(r"clip\d+")
    marked = clips.sub("", (folder / "steptime-demo/four-frameworks/report.html").read_text())
    plain = clips.sub("", (folder / "other.html").read_text())

    notice = re.search(r'<p class="verdict">(Recorded on .*)</p>\n', marked)
    assert notice
    assert notice[1].startswith(MARK)
    assert marked.replace(notice[0], "", 1) == plain


@pytest.mark.costly
def test_its_json_is_that_of_the_report_and_the_mark_is_beside_it(shown, reported):
    found = steptime("demo", "--json", cwd=shown[0])

    assert json.loads(found.stdout) == reported
    assert found.stderr.startswith(MARK)


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path):
    path = tmp_path / "mine" / "four-frameworks" / "study.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("name: mine\n")

    said = steptime("demo", "-o", "mine", cwd=tmp_path, check=2).stderr
    assert "mine/four-frameworks/study.yaml is not the file of the demo" in said
    assert "steptime demo -o DIR" in said
    assert path.read_text() == "name: mine\n"
    assert [each.name for each in path.parent.iterdir()] == ["study.yaml"]


def test_its_study_can_be_run_again(shown):
    steptime("run", "steptime-demo/four-frameworks/study.yaml", "--dry-run", "-o", "again", cwd=shown[0])


def test_the_recording_is_small():
    assert 0 < RECORDING.stat().st_size < MOST_BYTES
    assert {name.split("/")[0] for name in recorded_files()} == {"four-frameworks", "four-frameworks.profile.json"}
