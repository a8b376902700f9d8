"""What makes steps alike, so that only their times are noted: no process is needed to see it."""

import json

import pytest

from steptime.attach.step_form import StepForm, UsualStep

LINE = {
    "kind": "step",
    "number": 70,
    "begin_ns": 1_000,
    "duration_ns": 155,
    "micro_steps": 1,
    "regions": {"input": 10, "forward": 20, "backward": 30, "update": 40},
    "gaps": {"input>forward": 5, "forward>backward": 10, "backward>update": 15, "update>input": 25},
    "samples": 4,
    "backwards": [[1_045, 1_070, 1_075, None]],
    "optimizers": [0],
}
TIMES = [1_000, 1_010, 1_015, 1_035, 1_045, 1_070, 1_075, 1_090, 1_130, 1_155, 1_165]


def test_times_alone_make_the_line_of_their_step():
    assert UsualStep(StepForm.of(LINE), 70, TIMES).line() == LINE


@pytest.mark.parametrize("synchronised", [None, True, False])
def test_its_text_is_that_line(synchronised):
    line = {**LINE, "requests": 1, "backwards": [[1_045, 1_070, 1_075, synchronised]]}
    assert json.loads(UsualStep(StepForm.of(line), 70, TIMES).text()) == line


def test_durations_of_the_passes_of_one_step_are_added():
    passes = [[1_012, 1_013, 1_014, False], [1_026, 1_027, 1_028, True]]
    sums = {"regions": dict.fromkeys(("input", "forward", "backward", "update"), 1)}
    sums["gaps"] = dict.fromkeys(("input>forward", "forward>backward", "backward>input", "backward>update"), 1)
    sums["gaps"]["update>input"] = 1
    form = StepForm.of({**LINE, "micro_steps": 2, "requests": 2, "backwards": passes, **sums})
    times = [*range(1_000, 1_020), 1_030, 1_050]
    line = json.loads(UsualStep(form, 70, times).text())
    assert line["regions"] == {"input": 2, "forward": 2, "backward": 4, "update": 1}


@pytest.mark.parametrize(("at", "averages"), [(5, False), (12, True)])
def test_a_pass_averages_gradients_where_the_form_has_it(at, averages):
    sums = {"regions": dict.fromkeys(("input", "forward", "backward", "update"), 1)}
    form = StepForm({**LINE, **sums, "backwards": [[0, 0, 0, False], [0, 0, 0, True]]})
    assert form.averages[at] is averages


def test_between_two_times_the_place_is_a_region_or_a_gap():
    assert StepForm.of(LINE).places == [
        "update>input",
        "input",
        "input>forward",
        "forward",
        "forward>backward",
        "backward",
        "backward",
        "backward>update",
        "update",
        "update>input",
        "input",
        "input>forward",
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"apart": {}},
        {"flags": ["skipped"]},
        {"collectives": {}},
        {"content": 7},
        {"optimizers": [0, 1]},
        {"micro_steps": 2},
        {"requests": 2},
        {"regions": {**LINE["regions"], "save": 1}},
        {"gaps": {**LINE["gaps"], "forward>forward": 1}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_step_with_anything_else_is_not_usual(more):
    assert StepForm.of({**LINE, **more}) is None


@pytest.mark.parametrize("more", [{"samples": 3}, {"rows": 8}, {"optimizers": [1]}], ids=lambda more: next(iter(more)))
def test_steps_of_other_amounts_are_not_alike(more):
    assert StepForm.of({**LINE, **more}) != StepForm.of(LINE)
