"""The page about the study file says what the program does."""

import json
import re
import shlex
from pathlib import Path

import pytest

from steptime.frameworks.manifest import load_manifests
from steptime.runner.vocabulary import full_vocabulary
from steptime.study import Study, schema
from steptime.study.document import read_value
from steptime.study.mistakes import allowed_keys
from steptime.study.study_file import read_study

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "study-file.md").read_text(encoding="utf-8")
SMALLEST = {"workloads": "workloads: lenet5\n", "frameworks": "frameworks: pytorch\n"}
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^steptime run (.*)$", PAGE, re.MULTILINE)
ROWS = {row[0]: row[2] for row in re.findall(r"^\| `([a-z0-9_.]+)` \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)}
LISTS_AND_FRAMEWORKS = {
    "workloads": 0,
    "loaders": 0,
    "published": 0,
    "published_efficiency": 0,
    "environments": "pytorch",
}


REWRITE = (
    "python -c 'from steptime.study import schema; import json; print(json.dumps(schema(), indent=1))' "
    "> docs/study-schema.json"
)


def _completed(text: str) -> str:
    return text + "".join(line for key, line in SMALLEST.items() if not re.search(rf"^{key}:", text, re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_study(example, tmp_path):
    path = tmp_path / "race.yaml"
    path.write_text(_completed(example))

    assert read_study(path, [], full_vocabulary(load_manifests())).frameworks


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_of_overrides_can_be_applied(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("race.yaml").write_text(_completed(""))
    study, *overrides = shlex.split(command)

    assert read_study(study, overrides, full_vocabulary(load_manifests())).frameworks


def _keys() -> list[str]:
    keys = list(allowed_keys(()))
    for top in allowed_keys(()):
        if top not in ("include", "exclude"):
            below = (top, LISTS_AND_FRAMEWORKS[top]) if top in LISTS_AND_FRAMEWORKS else (top,)
            keys += [f"{top}.{key}" for key in allowed_keys(below)]
    return keys


def test_every_key_has_its_row_and_every_row_its_key():
    assert sorted(ROWS) == sorted(_keys())


@pytest.mark.parametrize("key", [key for key, default in ROWS.items() if default.startswith("`")])
def test_a_default_is_the_one_that_the_program_takes(key):
    value, mistakes = read_value(ROWS[key].strip("`"), key)
    assert not mistakes
    top, *below = key.split(".")
    needed = {"workloads": {"name": "lenet5"}, "environments": {}, "cluster": {"hosts": 2}, "train": {"epochs": 1}}
    least = needed.get(top, {})
    for part in reversed(below):
        value = {**least, part: value}
    without = least if below else None
    if top == "environments" and below:
        value, without = {"pytorch": value}, {"pytorch": without}

    def study(given: object) -> Study:
        fields = {"name": "a", "workloads": "lenet5", "frameworks": "pytorch"}
        return Study.model_validate(fields if given is None else {**fields, top: given})

    assert study(value) == study(without)


@pytest.mark.parametrize("key", [key for key, default in ROWS.items() if default == "none"])
def test_a_key_without_default_may_be_null(key):
    top, *below = key.split(".")
    node = schema()["properties"][top]
    for part in below:
        name = re.search(r"\$defs/(\w+)", json.dumps(node))[1]
        node = schema()["$defs"][name]["properties"][part]

    assert {"type": "null"} in node["anyOf"]
    assert node["default"] is None


def test_the_schema_for_editors_is_the_programs_own():
    stored = json.loads((DOCS / "study-schema.json").read_text(encoding="utf-8"))

    assert stored == schema(), f"write it anew: {REWRITE}"
