"""``--help`` of every verb, on a terminal as narrow as a phone's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from program import steptime

from steptime.cli.app import app
from steptime.cli.demo import unpack
from steptime.cli.verbs import VERBS as VERB_ROWS


def verbs() -> dict[tuple[str, ...], object]:
    """Return every verb with its words, groups among them."""
    found: dict[tuple[str, ...], object] = {(): typer.main.get_command(app)}
    waiting = [((), found[()])]
    while waiting:
        words, group = waiting.pop()
        for name, command in getattr(group, "commands", {}).items():
            found[(*words, name)] = command
            waiting.append(((*words, name), command))
    return found


VERBS = verbs()


def test_the_verbs_are_those_of_the_readme():
    assert {" ".join(words) for words in VERBS} >= {
        "doctor",
        "list",
        "run",
        "status",
        "report",
        "export",
        "env create",
        "env list",
        "env remove",
        "data make",
    }


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_fits_a_narrow_terminal_and_loses_no_option(words, tmp_path):
    text = steptime(*words, "--help", cwd=tmp_path, COLUMNS="60").stdout
    assert max(map(len, text.splitlines())) <= 60
    flags = {flag for param in VERBS[words].params for flag in param.opts if flag.startswith("--")}
    assert {flag for flag in flags if flag not in text} <= {"--install-completion", "--show-completion"}


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_shows_all_that_it_says_of_an_option(words, tmp_path):
    """Words in square brackets would be taken for the style of a text, and vanish."""
    text = steptime(*words, "--help", cwd=tmp_path, COLUMNS="1000").stdout
    shown = " ".join(text.replace("\u2502", " ").split())
    said = [" ".join(param.help.split()) for param in VERBS[words].params if getattr(param, "help", None)]
    assert [each for each in said if each not in shown] == []


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_and_every_option_of_it_is_explained(words):
    command = VERBS[words]
    assert command.help
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []


@pytest.mark.parametrize("verb", VERB_ROWS, ids=lambda verb: verb.name)
def test_the_list_of_verbs_has_the_first_paragraph_of_their_help(verb):
    assert verb.summary == " ".join(VERBS[verb.name,].help.split("\n\n")[0].split())


@pytest.mark.sampled
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["reprot"], ["env"]], ids=" ".join)
def test_no_other_verb_is_imported_for_one(words):
    program = f"import sys; from steptime.cli import app; app.run_program({words}); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.splitlines() if name.startswith("steptime")}
    modules = {f"steptime.cli.{verb.place.partition('.')[0]}" for verb in VERB_ROWS}
    assert loaded & modules <= ({"steptime.cli.env", "steptime.cli.frameworks"} if words == ["env"] else set())
    assert words == ["env"] or len(loaded) <= 24


def test_completion_lists_the_verbs_and_what_is_below_one(tmp_path):
    shown = [
        subprocess.run(
            [Path(sys.executable).with_name("steptime")],
            env={"_STEPTIME_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for typed in ("steptime sta", "steptime env ", "steptime report --form")
    ]
    assert '"status":"Show what a study is doing' in shown[0]
    assert '"create":' in shown[1]
    assert '"--format":' in shown[2]


def test_a_misspelt_verb_is_answered_with_the_right_one(tmp_path):
    said = steptime("reprot", cwd=tmp_path, check=2).stderr
    assert "report" in said
    assert "Traceback" not in said


def test_a_misspelt_option_is_answered_with_the_right_one(tmp_path):
    said = steptime("run", "quickstart", "--dryrun", cwd=tmp_path, check=2).stderr
    assert "--dry-run" in said


def test_no_verb_at_all_shows_the_help(tmp_path):
    done = steptime(cwd=tmp_path, check=None)
    assert re.search(r"Usage:.*steptime", done.stdout + done.stderr)
    assert "doctor" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("imported", "heavy"),
    [
        pytest.param("steptime.cli.app", ["numpy", "scipy", "pydantic", "polars", "rich"], id="the program"),
        pytest.param("steptime.runner.plan", ["scipy.optimize", "polars", "altair", "jinja2"], id="a run"),
    ],
)
def test_what_starts_often_does_not_import_what_few_commands_need(imported, heavy):
    program = f"import sys, {imported}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_of_a_verb_does_not_import_what_only_running_needs():
    """Of all verbs but for one, whose options name datasets."""
    verbs = [verb.name for verb in VERB_ROWS if verb.name != "data"]
    heavy = ["numpy", "scipy", "psutil", "steptime.study.study", "steptime.results.store"]
    program = f"""
import sys
from steptime.cli import app
for verb in {verbs}:
    app.run_program([verb, "--help"])
    print(*(f"{{name}} for {{verb}}" for name in {heavy} if name in sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["report", "steptime-demo/four-frameworks"], {"numpy.f2py", "numpy.testing", "scipy.stats"}),
        (["report", "steptime-demo/four-frameworks", "--format", "markdown"], {"numpy.f2py", "numpy.testing"}),
        (["attach", "-o", "out", "--", sys.executable, "-c", "pass"], {"scipy.special", "numpy.random"}),
    ],
    ids=["report", "report as markdown", "attach of nothing"],
)
def test_a_verb_waits_for_no_import_that_it_does_not_need(words, unused, demo):
    program = (
        "import sys, steptime.cli.app as app\n"
        f"code = app.run_program({words})\n"
        f"print(code, sorted(set({sorted(unused)}).intersection(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=demo, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0 []"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    unpack(folder / "steptime-demo")
    return folder
