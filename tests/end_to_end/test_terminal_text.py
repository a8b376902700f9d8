"""No verb lets a character of a name or a text of others reach the terminal that it would obey.

The names of the folder, the study and every file hold a new title for the window, a colour, a change of the direction
of text and a control character of Latin-1.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from program import STUDY, steptime

import steptime as package
from steptime.cli.app import app, run_program
from steptime.results.store import Store

HOSTILE = "\x1b]0;t\x07\x1b[31m\u202eevil\x9b31m"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
POINTS = "class,workers,throughput\n" + "".join(f"{HOSTILE},{count},{100 * count}\n" for count in (1, 2, 4, 8, 16))
LOG = "".join(
    f" [{HOSTILE}] iteration {number:8d}/      40 | consumed samples: {8 * number} | "
    f"elapsed time per iteration (ms): 50.1 | global batch size: 8 | lm loss: 6.1 | {HOSTILE}\n"
    for number in range(1, 41)
)
COMMANDS: dict[str, list[list[str]]] = {
    "doctor": [["doctor"], ["doctor", "--json"]],
    "list": [["list", "studies"], ["list", HOSTILE]],
    "check": [["check", HOSTILE]],
    "run": [
        ["run", "STUDY", "-o", "RESULTS", "workers=1", "launches={min: 1, max: 1}"],
        ["run", "STUDY", "-o", "RESULTS", "--dry-run"],
        ["run", "STUDY", "-o", "RESULTS", "--dry-run", "--json"],
        ["run", "STUDY", f"workloads={HOSTILE}"],
        ["run", HOSTILE],
        ["run", "STUDY", "--budget", HOSTILE],
        ["run", "STUDY", "--requeue", HOSTILE],
    ],
    "submit": [
        ["submit", "STUDY", "-o", "RESULTS", "--dry-run"],
        ["submit", "STUDY", "--option", HOSTILE],
        ["submit", "STUDY", "--to", "kubernetes", "--image", HOSTILE],
        ["submit", "STUDY", "--to", "kubernetes", "-o", f"/{HOSTILE}/{HOSTILE}"],
    ],
    "status": [["status", "RESULTS"], ["status", "RESULTS", "--json"], ["status", HOSTILE]],
    "report": [
        ["report", "RESULTS", "--html", "FOLDER/page.html"],
        ["report", "RESULTS", "--json"],
        ["report", HOSTILE],
    ],
    "export": [["export", "RESULTS"], ["export", "RESULTS", "--to", "csv"], ["export", "RESULTS", "--to", "chrome"]],
    "compare": [
        ["compare", "RESULTS", "RESULTS"],
        ["compare", HOSTILE, HOSTILE],
        ["compare", "RESULTS", "--by", HOSTILE],
    ],
    "advise": [
        ["advise", "RESULTS"],
        ["advise", "RESULTS", "--json"],
        ["advise", HOSTILE],
        ["advise", "RESULTS", "--verify", "--budget", HOSTILE],
    ],
    "attach": [["attach", "-o", "FOLDER/attached", "--", "true", HOSTILE], ["attach", "-o", "RESULTS", "--", HOSTILE]],
    "sweep": [
        ["sweep", "--dry-run", "--counts", "1", "-o", "FOLDER/sweep", "--", "true", "{workers}", HOSTILE],
        ["sweep", "--counts", "1", "--repeats", "1", "-o", "FOLDER/sweep", "--", "true", "{workers}", HOSTILE],
        ["sweep", "--set", HOSTILE, "--", "true", "{workers}"],
    ],
    "import": [
        ["import", "FOLDER/train.log", "-o", "FOLDER/imported"],
        ["import", "FOLDER/points.csv", "-o", "FOLDER/none"],
        ["import", HOSTILE],
    ],
    "serve": [["serve", HOSTILE], ["serve", "RESULTS", "--port", HOSTILE]],
    "net": [
        ["net", "star", "--dry-run", "-o", "FOLDER/net"],
        ["net", "star", "--dry-run", "-o", "FOLDER/net", "--json"],
        ["net", HOSTILE],
        ["net", "star", "--hosts", HOSTILE, "--launcher", "ssh"],
    ],
    "fit": [["fit", "RESULTS", "-o", "FOLDER/profile.json"], ["fit", "RESULTS", "--nccl-tests", "FOLDER/points.csv"]],
    "predict": [
        ["predict", "FOLDER/profile.json", "--workers", "1"],
        ["predict", "FOLDER/profile.json", "--workers", "1", f"workload={HOSTILE}"],
        ["predict", "FOLDER/points.csv", "--workers", "2"],
        ["predict", "--curve", "FOLDER/points.csv", "--workers", "32"],
    ],
    "peak": [["peak", "RESULTS"], ["peak", HOSTILE]],
    "evidence": [["evidence", "FOLDER/points.csv"], ["evidence", "FOLDER/points.csv", "--json"], ["evidence", HOSTILE]],
    "frameworks new": [["frameworks", "new", "mine", "-o", "FOLDER/mine"], ["frameworks", "new", HOSTILE]],
    "workloads new": [["workloads", "new", "mine", "-o", "FOLDER/own"], ["workloads", "new", HOSTILE]],
    "demo": [["demo", "--json", "-o", "FOLDER/demo"], ["demo", "--json", "-o", HOSTILE]],
    "env create": [["env", "create", HOSTILE]],
    "env list": [["env", "list"], ["env", "list", "--json"]],
    "env remove": [["env", "remove", HOSTILE], ["env", "remove", "old"]],
    "env lock": [["env", "lock", HOSTILE]],
    "data make": [["data", "make", "digits", "FOLDER/pictures", "--size", "8x8"], ["data", "make", HOSTILE]],
}
"""By verb, commands whose arguments, files and failures hold the text; upper-case words stand for paths."""
LEFT_OUT = [["report", "RESULTS", HOSTILE], ["report", "RESULTS", f"--{HOSTILE}"], [HOSTILE]]
"""Arguments that no verb takes."""
OWN_CACHE = {"doctor", "env create", "env list", "env remove", "env lock"}


def verbs() -> Iterator[str]:
    """Yield the words of every verb."""
    waiting: list[tuple[str, object]] = [("", typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop()
        below = getattr(command, "commands", {})
        waiting += [(f"{words} {name}".strip(), each) for name, each in below.items()]
        if not below:
            yield words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results, a profile and a table, all of whose texts come from somebody else."""
    made = tmp_path_factory.mktemp("others") / HOSTILE
    made.mkdir()
    study = made / f"{HOSTILE}.yaml"
    study.write_text(f"question: {json.dumps(HOSTILE)}\n{STUDY}equivalence: {{enabled: false}}\n")
    (made / "points.csv").write_text(POINTS)
    (made / "train.log").write_text(f"{HOSTILE}\n" + LOG)
    (made / "cache" / "environments" / "old-0123456789ab").mkdir(parents=True)
    small = ["workers=1", "launches={min: 1, max: 1}", "breakdown={launches: 1, seconds: 1}"]
    steptime("run", str(study), *small, "-o", str(made / "results"), cwd=made)
    store = Store.open(made / "results")
    for trial in store.trials():
        records = store.path / "trials" / trial.id / "records.jsonl"
        with records.open("a") as file:
            file.write(f"{HOSTILE}\n{json.dumps({'schema': 1, HOSTILE: 1})}\n")
    steptime("fit", str(made / "results"), "-o", str(made / "profile.json"), cwd=made, check=None)
    return made


def commands() -> list[object]:
    """Return every command, named after its verb."""
    found = [(verb, command) for verb, each in COMMANDS.items() for command in each]
    found += [("", command) for command in LEFT_OUT]
    return [pytest.param(*each, id=f"{each[0]} {number}") for number, each in enumerate(found)]


def test_every_verb_is_tried():
    assert set(COMMANDS) == set(verbs())


@pytest.mark.sampled("verb")
@pytest.mark.parametrize(("verb", "command"), commands())
def test_a_terminal_obeys_nothing_of_what_is_printed(verb, command, folder, monkeypatch, capfd):
    words = {"STUDY": str(folder / f"{HOSTILE}.yaml"), "RESULTS": str(folder / "results")}
    monkeypatch.chdir(folder)
    if verb in OWN_CACHE:
        monkeypatch.setenv("STEPTIME_CACHE", str(folder / "cache"))

    run_program([words.get(word, word.replace("FOLDER", str(folder))) for word in command])

    said, told = capfd.readouterr()
    assert OBEYED.findall(said + told) == []
    assert "evil" not in said + told or r"\x1b" in said + told or r"\u001b" in said


def test_only_the_two_functions_and_the_console_write_to_the_terminal():
    """A verb that wrote by itself could forget it."""
    writing = {
        path.name
        for path in (Path(package.__file__).parent / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho"}
    }

    assert writing == {"streams.py"}
