"""The pages about studies say what the program does, and the generated pages are the program's own."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from steptime.runner.extending.template import write_workload
from steptime.study.document import read_value
from steptime.study.mistakes import allowed_keys
from steptime.study.study import Study
from steptime.study.study_file import read_study

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KEYS = (DOCS / "study-keys.md").read_text(encoding="utf-8")
SMALLEST = {"workloads": "workloads: lenet5\n", "frameworks": "frameworks: pytorch\n"}
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLES = [
    pytest.param(example, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, example in enumerate(
        re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL), 1
    )
]
COMMANDS = re.findall(r"^steptime run (.*)$", (DOCS / "study-file.md").read_text(encoding="utf-8"), re.MULTILINE)
LISTS_AND_FRAMEWORKS = {
    "workloads": 0,
    "loaders": 0,
    "published": 0,
    "published_efficiency": 0,
    "environments": "pytorch",
    "named_environments": "old",
}


def _sections() -> dict[str, str]:
    """Return the text of every section of the page of keys, by its heading."""
    return {part.split("\n")[0]: part for part in KEYS.split("\n### ")[1:]}


def _lines() -> dict[str, str]:
    """Return the line of every key: its section's first, or its own below the key of the section."""
    lines = {}
    for top, part in _sections().items():
        lines[top] = part.split("\n\n")[1]
        if top not in ("include", "exclude"):
            same = re.search(r"^Keys as of `(\w+)`\.$", part, re.MULTILINE)
            below = _sections()[same[1]] if same else part
            lines |= {
                f"{top}.{key}": line for key, line in re.findall(r"^(?:- )?`(\w+)`: (.*?)\\?$", below, re.MULTILINE)
            }
    return lines


LINES = _lines()
DEFAULTS = {key: found[1] for key, line in LINES.items() if (found := re.match(r"\([^)]*default `([^`]*)`\)", line))}


def _completed(text: str) -> str:
    return text + "".join(line for key, line in SMALLEST.items() if not re.search(rf"^{key}:", text, re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_study(example, tmp_path):
    path = tmp_path / "race.yaml"
    path.write_text(_completed(example))
    if "module: mine:build" in example:
        write_workload("mine", tmp_path)

    assert read_study(path).frameworks


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_of_overrides_can_be_applied(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("race.yaml").write_text(_completed(""))
    study, *overrides = shlex.split(command)

    assert read_study(study, overrides).frameworks


SHOWN = [found for part in _sections().values() if (found := re.search(r"`([a-z_]+: .+)`$", part.split("\n\n")[1]))]
BESIDE = {
    "cluster": "launcher: emulated\n",
    "environment_names": "named_environments: {old: {python: /old/python}, new: {python: /new/python}}\n",
    "global_batch": "workers: 2\n",
    "loaders": "workloads: {name: lenet5, dataset: digits}\n",
    "scales": "scale: paper\n",
    "train": "workloads: {name: lenet5, dataset: digits}\n",
    "server_placement": "strategies: ps_sync\n",
}
"""What the example of a key needs beside it."""


def test_keys_of_several_values_have_an_example():
    assert len(SHOWN) > 40


@pytest.mark.parametrize("example", [found[1] for found in SHOWN])
def test_the_example_of_a_key_is_one_that_a_study_takes(example, tmp_path):
    path = tmp_path / "race.yaml"
    path.write_text(_completed(f"{example}\n{BESIDE.get(example.partition(':')[0], '')}"))

    assert read_study(path).frameworks


def _keys() -> list[str]:
    keys = list(allowed_keys(()))
    for top in allowed_keys(()):
        if top not in ("include", "exclude"):
            below = (top, LISTS_AND_FRAMEWORKS[top]) if top in LISTS_AND_FRAMEWORKS else (top,)
            keys += [f"{top}.{key}" for key in allowed_keys(below)]
    return keys


def test_every_key_has_its_line_and_every_line_its_key():
    assert sorted(LINES) == sorted(_keys())


@pytest.mark.parametrize("key", LINES)
def test_every_key_is_described(key):
    assert re.match(r"(\(.+\) )?[A-Z`]", LINES[key])


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_default_is_the_one_that_the_program_takes(key):
    value, mistakes = read_value(DEFAULTS[key], key)
    assert not mistakes
    top, *below = key.split(".")
    needed = {
        "workloads": {"name": "lenet5"},
        "environments": {},
        "named_environments": {},
        "cluster": {"hosts": 2},
        "train": {"epochs": 1},
    }
    least = needed.get(top, {})
    for part in reversed(below):
        value = {**least, part: value}
    without = least if below else None
    if top in ("environments", "named_environments") and below:
        value, without = {"pytorch": value}, {"pytorch": without}

    def study(given: object) -> Study:
        fields = {"name": "a", "workloads": "lenet5", "frameworks": "pytorch"}
        return Study.model_validate(fields if given is None else {**fields, top: given})

    assert study(value) == study(without)


def test_the_generated_pages_and_the_schema_for_editors_are_the_programs_own():
    done = subprocess.run(
        [sys.executable, DOCS / "reference_pages.py", "--check"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
