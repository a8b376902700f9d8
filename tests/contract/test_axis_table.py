"""A further axis is a row of AXES with its key, a field of the trial and a key of its summary: three files.

The program is copied with the lines of EDITS, and asked as a user would ask it.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from program import steptime as steptime_here

import steptime
from steptime.analysis.summary_form import KEYS_OF_TRIAL
from steptime.exports.export import _PLAIN
from steptime.study.study import (
    AXES,
    FURTHER_FIELDS,
    TRAIN_AXES,
    Exclusion,
    Inclusion,
    Study,
    neutral_fields,
    values_alone,
)
from steptime.study.training import TrainChoice
from steptime.study.trial import Trial

SOURCE = Path(steptime.__file__).parent
PAGES = Path(__file__).parents[2] / "docs" / "reference_pages.py"
ROW = '    Axis("fused", "fused", OneOrMany[bool], as_given=True),\n'
KEY = """
    fused: Annotated[OneOrMany[bool], Field(min_length=1)] = [False]
    '''Whether the update is one kernel.'''
"""
FIELD = "    fused: bool = False\n"
EDITS = {
    "study/study.py": {'    Axis("tuning", ': ROW, "    threads_per_worker: ProcessCount = 1\n": KEY},
    "study/trial.py": {'    tuning: Tuning = "documented"\n': FIELD},
    "analysis/summary_form.py": {'    tuning: Tuning = "documented"\n': FIELD},
}
"""By file, what is written before a line of it."""
STUDY = """
workloads: lenet5
frameworks: reference
equivalence: {enabled: false}
launches: {min: 2, max: 2}
seconds_per_launch: 0.1
steps: {warmup: 1, min: 3, max: 5}
"""
VARIED = f"{STUDY}fused: [false, true]\n"
CHOSEN = f"{VARIED}exclude: {{fused: true}}\ninclude: {{workers: 2, strategies: allreduce, fused: true}}\n"
ANSWERING = """
import contextlib, io, json, os, runpy, sys
from pathlib import Path

from program import steptime

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

for line in sys.stdin:
    arguments = json.loads(line)
    if arguments[0] == "-c":
        Path("asked.py").write_text(arguments[1])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path("asked.py")
        text = printed.getvalue()
    else:
        text = steptime(*arguments, cwd=Path.cwd()).stdout
    print(json.dumps(text), file=answers, flush=True)
"""
"""Answers every question in one process, which imports the copy once."""
INLINE = ("launcher=inline", "isolation=preferred")


def extended(folder):
    """Return the folder of a program that has one axis more."""
    copy = shutil.copytree(SOURCE, folder / "src" / "steptime", ignore=shutil.ignore_patterns("__pycache__"))
    for name, lines in EDITS.items():
        text = (copy / name).read_text()
        for line, added in lines.items():
            assert text.count(line) == 1, f"{line!r} is not in {name} exactly once"
            text = text.replace(line, added + line)
        (copy / name).write_text(text)
    return copy.parent


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("axis")
    sources = extended(folder)
    for name, text in {"plain": STUDY, "varied": VARIED, "chosen": CHOSEN}.items():
        (folder / f"{name}.yaml").write_text(text)

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(sources), *sys.path])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", ANSWERING], cwd=folder, env=environment, **pipes) as process:

        @cache
        def output(*arguments):
            process.stdin.write(f"{json.dumps(arguments)}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"the program with one axis more ended at {arguments}: its last words are above"
            return json.loads(answer)

        def trials(study):
            return json.loads(output("run", study, "--dry-run", "--json"))["trials"]

        yield SimpleNamespace(output=output, trials=trials, folder=folder, sources=sources)


@pytest.fixture(scope="module")
def measured(program):
    program.output("run", "varied.yaml", *INLINE, "-o", "results")
    return program


def test_a_further_axis_is_written_in_three_files():
    assert len(EDITS) == 3


def test_what_answers_is_the_program_that_has_it(program):
    where = program.output("-c", "import steptime; print(steptime.__file__)").strip()
    assert Path(where) == program.sources / "steptime" / "__init__.py"


def test_a_study_varies_it(program):
    assert [trial["fused"] for trial in program.trials("varied.yaml")] == [False, True]


@pytest.mark.costly
def test_an_exclusion_and_an_inclusion_choose_its_values(program):
    assert [(trial["workers"], trial["fused"]) for trial in program.trials("chosen.yaml")] == [(1, False), (2, True)]


@pytest.mark.costly
def test_an_override_lists_its_values(program):
    output = program.output("run", "plain.yaml", "fused=true,false", "--dry-run", "--json")
    assert [trial["fused"] for trial in json.loads(output)["trials"]] == [True, False]


@pytest.mark.costly
def test_a_trial_keeps_its_id_where_the_axis_has_its_default(program):
    plan = json.loads(steptime_here("run", "plain.yaml", "--dry-run", "--json", cwd=program.folder).stdout)
    (before,) = plan["trials"]
    first, second = program.trials("varied.yaml")
    assert first["id"] == before["id"] != second["id"]


@pytest.mark.costly
def test_the_plan_names_its_value(program):
    assert "reference single fused=True" in program.output("run", "varied.yaml", "--dry-run")


@pytest.mark.costly
def test_the_reference_of_the_study_file_lists_it(program):
    code = f"import sys; sys.path.insert(0, {str(PAGES.parent)!r}); import reference_pages as r; print(r.study_page())"
    page = program.output("-c", code)
    assert "## fused\n\n(`true`, `false`; list; default `false`) Whether the update is one kernel." in page
    assert page.count("`environment_variables`: as in the study") == page.count("`fused`, ") == 1
    assert (
        "(list) Combinations that are not wanted. `exclude: [{strategies: allreduce, workers: 1}]`\n\naxes as" in page
    )


@pytest.mark.costly
def test_the_report_names_trials_by_it(measured):
    assert "reference single fused=True" in measured.output("report", "results")


@pytest.mark.costly
def test_the_report_in_json_has_it(measured):
    report = json.loads(measured.output("report", "results", "--json"))
    assert sorted(trial["fused"] for trial in report["trials"]) == [False, True]


@pytest.mark.costly
def test_the_page_has_it_among_the_settings(measured):
    measured.output("report", "results", "--html", "page.html")
    assert "1 thread per worker, fused=True" in (measured.folder / "page.html").read_text()


@pytest.mark.costly
def test_the_exported_table_has_it(measured):
    measured.output("export", "results", "--to", "csv", "-o", "tables")
    rows = csv.DictReader(io.StringIO((measured.folder / "tables" / "trials.csv").read_text()))
    assert sorted(row["fused"] for row in rows) == ["false", "true"]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_every_axis_is_a_key_of_study_inclusion_and_exclusion(axis):
    study = TrainChoice if axis.name in TRAIN_AXES else Study
    assert all(axis.name in form.model_fields for form in (study, Inclusion, Exclusion))


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_every_axis_is_a_field_or_a_property_of_a_trial(axis):
    assert axis.field in Trial.model_fields or hasattr(Trial, axis.field)


def test_no_other_key_of_a_study_or_an_inclusion_is_an_axis():
    own = {name for name in Inclusion.model_fields if name not in Exclusion.model_fields}
    assert own == {"cluster", "train"}
    assert set(Exclusion.model_fields) == {axis.name for axis in AXES}


def test_what_reports_write_of_an_axis_is_in_the_summary():
    assert set(FURTHER_FIELDS) <= set(KEYS_OF_TRIAL)


def asked(program, code):
    """Return what the program with the further axis prints as JSON of the trials of its results."""
    reading = "import json; from pathlib import Path; from steptime.results.store import Store; "
    opened = "store = Store.open(Path('results')); trials = list(store.trials())\n"
    return json.loads(program.output("-c", f"{reading}{opened}{code}"))


@pytest.mark.costly
def test_the_study_that_advice_writes_of_a_trial_has_its_value_alone(measured):
    code = "from steptime.diagnosis.verification import study_of; from steptime.study.study import Study\n"
    code += "studies = [Study(**{**study_of(store, each), 'name': 'alone'}) for each in trials]\n"
    assert sorted(asked(measured, f"{code}print(json.dumps([each.fused for each in studies]))")) == [[False], [True]]


@pytest.mark.costly
def test_the_reference_of_the_checks_has_its_neutral_value(measured):
    code = "from steptime.equivalence.oracle import reference_of as alone\n"
    code += "print(json.dumps([alone(each, same_environment=own).fused for each in trials for own in (False, True)]))"
    assert asked(measured, code) == [False] * 4


@pytest.mark.costly
def test_two_sides_of_a_comparison_are_chosen_by_it(measured):
    compared = json.loads(measured.output("compare", "results", "--by", "fused=False,True", "--json"))
    assert (compared["first"]["name"], compared["second"]["name"]) == ("fused=False", "fused=True")
    assert len(compared["trials"]) == 1


@pytest.mark.costly
def test_a_profile_has_a_model_of_each_of_its_values(measured):
    code = "from steptime.fitting.observation import key_of\nprint(json.dumps([key_of(each).name for each in trials]))"
    names = ["reference single fused=True, lenet5", "reference single, lenet5"]
    assert sorted(asked(measured, code)) == names


@pytest.mark.costly
def test_a_prediction_may_be_asked_for_one_of_its_values(measured):
    assert asked(measured, "from steptime.predict.query import KEYS\nprint(json.dumps('fused' in KEYS))")


TRIAL = Trial(
    framework="mxnet",
    strategy="ps_sync",
    workload="lenet5",
    input_shape=(1, 28, 28),
    classes=10,
    dataset=None,
    loader="synthetic",
    device="cpu",
    precision="fp32",
    workers=2,
    servers=2,
    server_placement="colocated",
    batch_per_worker=8,
    accumulation=2,
    tuning="tuned",
    environment_name="other",
    environment_variables={"OMP_WAIT_POLICY": "active"},
)


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis.name not in TRAIN_AXES], ids=lambda axis: axis.name)
def test_every_axis_of_a_study_of_one_trial_has_the_value_of_the_trial(axis):
    written = {**values_alone(TRIAL), "workloads": ["lenet5"], "options": {}, "name": "alone"}
    value = getattr(Study(**written), axis.name)
    if axis.field in ("options", "global_batch"):  # chosen by the tier; given by each worker's batch
        assert not value
    elif isinstance(value, dict):
        assert value == {"OMP_WAIT_POLICY": ["active"]}
    else:
        own = getattr(TRIAL, axis.field)
        assert [getattr(each, "name", each) for each in value] == [getattr(own, "name", own)]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_the_reference_is_one_process_of_plain_values_on_every_axis(axis):
    reference = TRIAL.model_copy(update=neutral_fields(TRIAL))
    again = reference.model_copy(update=neutral_fields(reference))
    assert getattr(reference, axis.field) == getattr(again, axis.field)
    assert getattr(Trial(**reference.model_dump(exclude={"id"})), axis.field) == getattr(reference, axis.field)


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_every_axis_is_a_column_or_has_a_form_of_its_own_in_tables(axis):
    assert axis.field in KEYS_OF_TRIAL if axis.column else axis.field not in _PLAIN
