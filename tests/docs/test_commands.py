"""Every command of the documentation is run, run with ``--dry-run``, or at least read by the program's own parser."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from PIL import Image
from program import steptime
from typer.testing import CliRunner

from steptime.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])
DRY = ("run", "submit")
"""Verbs that show with ``--dry-run`` what they would do."""
READ_ONLY = ("report", "compare", "export", "fit", "predict", "status", "list", "doctor")
"""Verbs that start nothing, and are run."""
ELSEWHERE = ("report A B", "compare results --by", "evidence", "predict --curve", "run sgd-models --scale paper")
"""Commands that take a minute or need GPUs; tests of their own run them."""
PLACEHOLDERS = {
    "STUDY": "study.yaml",
    "DIR": "results",
    "NAME": "pytorch",
    "FRAMEWORK": "pytorch",
    "WHAT": "frameworks",
    "FILE": "reference.csv",
}
SMALL = """\
workloads: {name: lenet5, batch_per_worker: 8}
frameworks: reference
strategies: [single, allreduce]
workers: [1, 2]
exclude: [{strategies: allreduce, workers: 1}]
launches: {min: 2, max: 2}
seconds_per_launch: 0.2
steps: {warmup: 2, min: 5, max: 20}
breakdown: {launches: 1, seconds: 1s}
equivalence: {enabled: false}
"""
DEVICES = "\n".join(f"#  Rank {rank} Group 0 Pid 1 on host device {rank} [0x00] NVIDIA A100" for rank in range(8))
NCCL_TABLE = f"""\
# nThread 1 nGpus 1 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
{DEVICES}
       65536         16384     float     sum      -1    31.82    2.06    3.60      0    30.24    2.17    3.79      0
     1048576        262144     float     sum      -1    37.89   27.67   48.43      0    38.57   27.19   47.58      0
  1073741824     268435456     float     sum      -1   8244.5  130.24  227.91      0   8252.7  130.11  227.69      0
"""


def shell_lines(text: str) -> list[str]:
    """Return the commands of all shell blocks of a page, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [shlex.join(words) for block in blocks for line in block.splitlines() if (words := shlex.split(line, True))]


def inline(text: str) -> list[str]:
    """Return the commands of steptime in the sentences of a page that are whole: without dots for what may follow."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in re.findall(r"`(steptime [a-z][^`]*)`", text) if not re.search(r"…|\.\.\.|\||KEY", line)]


SHELL = sorted({line for page in PAGES for line in shell_lines(page.read_text(encoding="utf-8"))})
OF_STEPTIME = sorted(
    {line.removeprefix(".venv/bin/") for line in SHELL if re.match(r"(\.venv/bin/)?steptime ", line)}
    | {line for page in PAGES if page.name != "CHANGELOG.md" for line in inline(page.read_text(encoding="utf-8"))}
)
PROGRAM = typer.main.get_command(app)
OTHERS = [line for line in SHELL if not re.match(r"(\.venv/bin/)?steptime ", line)]


def block(page: str, kind: str, holding: str) -> str:
    """Return the block of a page that holds a text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return next(b for b in re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if holding in b)


def works_here(line: str) -> bool:
    """Whether a command reads results or can be planned; others measure or install, and are only parsed."""
    words = line.split()[1:]
    whole = any(not word.startswith("-") for word in words[1:]) or words == ["doctor"]
    elsewhere = any(" ".join(words).startswith(name) for name in ELSEWHERE)
    here = words[0] in (*DRY, *READ_ONLY) or words[:2] in (["net", "list"], ["env", "list"])
    return whole and here and not elsewhere


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name: studies, results, their profile, a curve, output of nccl-tests."""
    path = tmp_path_factory.mktemp("documented")
    (path / "small.yaml").write_text(SMALL)
    for command in (
        "run small.yaml -o results",
        "run small.yaml -o other",
        "fit results -o results.profile.json",
        "workloads new mine",
    ):
        steptime(*command.split(), cwd=path)
    for name in ("steptime-results/buckets", "steptime-results/STUDY", "steptime-results/attach-slow_script"):
        shutil.copytree(path / "results", path / name)
    for name in ("slow", "buckets"):
        shutil.copy(path / "results.profile.json", path / f"{name}.profile.json")
    (path / "buckets.yaml").write_text(block("docs/start.md", "yaml", "bucket_mb"))
    for name in ("study.yaml", "race.yaml"):
        (path / name).write_text("workloads: lenet5\nframeworks: pytorch\n")
    (path / "points.csv").write_text(block("docs/prediction.md", "text", "step_time_s,role"))
    (path / "reference.csv").write_text("framework,samples_per_s,low,high\nreference,100,90,110\n")
    for name in ("one-host.txt", "two-hosts.txt"):
        (path / name).write_text(NCCL_TABLE)
    for name in "ab":
        (path / "imagenet" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(path / "imagenet" / name / "picture.png")
    for name in ("examples", "tests"):
        (path / name).symlink_to(ROOT / name)
    return path


@pytest.fixture
def there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder as the current one, with an empty cache."""
    monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path))
    monkeypatch.chdir(folder)


def words_of(line: str) -> list[str]:
    """Return the arguments of a command with names in place of what a reader fills in."""
    return [PLACEHOLDERS.get(word, word.replace(",NAME", ",pytorch")) for word in shlex.split(line)[1:]]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("line", OF_STEPTIME)
def test_a_command_is_one_that_the_program_takes(line):
    words, command, context = words_of(line), PROGRAM, None
    name = "steptime"
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, info_name=name, parent=context)
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"no verb {name}"
    missing = isinstance(command, click.Group)
    try:
        assert missing or command.make_context(name, words, parent=context)
    except click.MissingParameter:
        assert len(line.split()) <= 3, "an argument is missing"  # the name of the verb, in a sentence


@pytest.mark.costly
@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("line", [line for line in OF_STEPTIME if works_here(line)])
def test_a_command_that_measures_nothing_or_can_be_planned_works(line):
    verb, *words = words_of(line)
    if verb in DRY and "--dry-run" not in words:
        words.append("--dry-run")
    done = CliRunner().invoke(app, [verb, *words])
    refused = verb == "predict" and done.exit_code == 3
    assert done.exit_code == 0 or refused, done.output or done.exception


@pytest.mark.costly
@pytest.mark.parametrize("line", OTHERS)
def test_a_command_of_another_program_is_there(line):
    words = shlex.split(line)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    elif words[:2] == ["pip", "install"] and words[2] in {".", ".[page]"}:  # .ci/try_wheel.py installs what this builds
        assert (ROOT / "pyproject.toml").is_file()
    else:
        assert Path(words[0]).name == "python"
        done = subprocess.run(
            [sys.executable, words[1], "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        options = [word for word in words if word.startswith("--")]
        assert [option for option in options if option not in done.stdout] == []


def test_a_command_that_does_not_exist_is_found():
    assert shell_lines("```sh\nsteptime fly 'to mars'  # soon\n```\n") == ["steptime fly 'to mars'"]
    assert inline("Try `steptime run STUDY`, `steptime list …` or `steptime predict KEY=VALUE`.") == [
        "steptime run STUDY"
    ]
