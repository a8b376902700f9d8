"""What a study holds once it is read: defaults, spellings, and the form that is stored."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from steptime.study.document import Document, read_yaml
from steptime.study.mistakes import form_mistakes
from steptime.study.study import AXIS_NAMES, TRAIN_AXES, Exclusion, Inclusion, Study
from steptime.study.workload_choice import LoaderChoice, WorkloadChoice

SMALLEST = "workloads: lenet5\nframeworks: pytorch\n"


def test_only_workloads_and_frameworks_must_be_given(read):
    study = read(SMALLEST)

    assert study == Study(name="race", workloads=[WorkloadChoice(name="lenet5")], frameworks=["pytorch"])


def test_the_batch_is_32_per_worker_unless_one_is_given(read):
    assert read(SMALLEST).batch_per_worker == [32]
    assert read(SMALLEST + "global_batch: 64").batch_per_worker is None


@pytest.mark.parametrize("axis", [axis for axis in AXIS_NAMES if axis not in ("options", "environment_variables")])
def test_a_single_value_is_a_list_of_one(read, axis):
    value = {
        "frameworks": "mxnet",
        "strategies": "single",
        "workloads": "lenet5",
        "loaders": "synthetic",
        "precision": "bf16",
        "device": "cpu",
        "tuning": "tuned",
        "server_placement": "colocated",
        "optimizer": "adam",
        "schedules": "cosine",
        "scaling_rule": "linear",
        "environment_names": "new",
    }.get(axis, 8)
    others = {"workloads": "lenet5", "frameworks": "pytorch", "named_environments": {"new": {"kind": "venv"}}}
    if axis in TRAIN_AXES:
        others["workloads"] = {"name": "lenet5", "dataset": "digits"}

    def study_with(values):
        named = {"train": {"epochs": 10, axis: values}} if axis in TRAIN_AXES else {axis: values}
        return read(json.dumps({**others, **named}))

    one, many = study_with(value), study_with([value])
    found = getattr(one.train if axis in TRAIN_AXES else one, axis)

    assert one == many
    assert len(found) == 1


def test_a_workload_may_be_a_name_a_mapping_or_a_list_of_both(read):
    study = read("frameworks: pytorch\nworkloads: [lenet5, {name: resnet50, image: [64, 96], batch_per_worker: 8}]")

    assert study.workloads == [
        WorkloadChoice(name="lenet5"),
        WorkloadChoice(name="resnet50", image=(64, 96), batch_per_worker=[8]),
    ]


def test_a_loader_may_name_its_processes(read):
    loaders = read(SMALLEST + "loaders: [synthetic, {name: native, processes: 2}]").loaders

    assert loaders == [LoaderChoice(name="synthetic"), LoaderChoice(name="native", processes=[2])]


@pytest.mark.parametrize(("written", "seconds"), [("90", 90), ("8m", 480), ("1h30m", 5400), ("1.5s", 1.5)])
def test_durations_are_seconds_inside(read, written, seconds):
    assert read(SMALLEST + f"budget: {written}").budget == seconds


@pytest.mark.parametrize("written", ["2%", "0.02", "2 %", "'2%'"])
def test_shares_are_numbers_inside(read, written):
    assert read(SMALLEST + f"target: {written}").target == pytest.approx(0.02)


def test_anchors_and_merges_of_yaml_work(read):
    text = SMALLEST + "options: {pytorch: &o {compile: true, layout: nhwc}}\n"
    text += "include: {options: {pytorch: {<<: *o, layout: nchw}}}\n"

    assert read(text).include[0].options == {"pytorch": {"compile": [True], "layout": ["nchw"]}}


def test_the_stored_form_is_read_back_as_the_same_study(read):
    study = read(
        "frameworks: [pytorch, mxnet]\nworkloads: {name: resnet50, image: 64, dataset: photos}\nbudget: 8m\n"
        "options: {pytorch: {bucket_mb: [1, 25.5], compile: true}}\ninclude: {workers: 4}\n"
        "exclude: [{workers: 1, strategies: [allreduce]}]\nenvironments: {pytorch: {python: /usr/bin/python3}}\n"
    )

    stored = json.loads(json.dumps(study.model_dump(mode="json")))

    assert Study.model_validate(stored) == study


def test_the_stored_form_is_itself_a_study_file(read):
    study = read(SMALLEST + "exclude: {workers: 1}\nbudget: 8m\n")

    assert read(json.dumps(study.model_dump(mode="json"))) == study


def test_include_and_exclude_know_the_same_axes():
    """What is trained beyond the study's own trials, and on other hosts, is said by an inclusion alone."""
    assert set(Inclusion.model_fields) - {"train", "cluster"} == set(Exclusion.model_fields) == set(AXIS_NAMES)


_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("äé漢🙂"))
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(Study.model_fields)), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*Study.model_fields, "other"]), _PLAIN, max_size=4))
def test_whatever_a_file_holds_the_answer_is_a_study_or_a_list_of_mistakes(data):
    document = Document("x.yaml", {**data, "name": "x"})
    try:
        study = Study.model_validate(document.data)
    except ValidationError as error:
        sentences = document.sentences(form_mistakes(error))
        assert all(sentence.startswith("x.yaml: ") for sentence in sentences)
    else:
        assert study.name == "x"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_TEXT, _JSON, max_size=4))
def test_json_is_read_as_json_reads_it(data):
    text = json.dumps(data, ensure_ascii=False)

    assert read_yaml(text, "x.json").data == data


def test_importing_the_room_imports_neither_numpy_nor_a_yaml_reader():
    code = "import steptime.study, sys; print([m for m in ('numpy', 'ruamel.yaml') if m in sys.modules])"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
