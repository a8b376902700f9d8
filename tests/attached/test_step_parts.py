"""The parts of a step sum to it; steps that an evaluation or a checkpoint touches are not among them."""

import numpy as np
import pytest
from stored_processes import BEGIN, MS, ddp_job, ddp_steps, found_in, part_of, process_lines, sentences_of, step, write

from steptime.diagnosis.rules import script_findings
from steptime.plain_file import PlainFolder
from steptime.report.attached import job_title, run_notes
from steptime.results.attached_files import read_attached
from steptime.results.gpu_windows import RECORDS


def one_process(folder, steps, **more):
    return found_in(write(folder, process_lines(0, 1, steps, **more)), 60_000.0)


def plain_steps(count=40, **more):
    found, begin = [], BEGIN
    for number in range(count):
        one = step(number, begin, {"input": 10.0, "forward": 20.0, "backward": 30.0, "update": 5.0}, **more)
        begin += one["duration_ns"]
        found.append(one)
    return found


def test_parts_sum_to_the_step(tmp_path):
    run = ddp_job(tmp_path, lambda _: [0.0, 15.0], gap=7.0)
    assert sum(part.time_s.value for part in run.parts if part.time_s.value) == pytest.approx(run.step_s.value)
    assert sum(part.share for part in run.parts if part.share is not None) == pytest.approx(1.0)


def test_a_first_step_that_loads_kernels_is_left_out(tmp_path):
    """It is one of 120, as on a GPU, and as long as all others together."""
    steps = plain_steps(120)
    steps[0]["regions"]["forward"] += 8_000 * MS
    steps[0]["duration_ns"] += 8_000 * MS
    for each in steps[1:]:
        each["begin_ns"] += 8_000 * MS
    run = one_process(tmp_path, steps)
    assert (run.step_s.value, run.left_out) == (pytest.approx(0.065), 1)


def test_a_gap_is_named_by_what_lies_before_and_after(tmp_path):
    run = ddp_job(tmp_path, lambda _: [0.0, 0.0], gap=20.0)
    gap = part_of(run, "forward>backward")
    assert (gap.gap, gap.time_s.value) == (True, pytest.approx(0.020))
    assert "between forward and backward" in sentences_of(run)["gaps"]


def test_a_gap_is_named_by_the_line_that_most_samples_show(tmp_path):
    steps = [{**each, "gaps": {"update>input": 30 * MS}, "duration_ns": 95 * MS} for each in plain_steps()]
    for number, each in enumerate(steps):
        each["begin_ns"] = BEGIN + number * 95 * MS
    places = {"update>input": {"train.py:62 log_images": 90, "train.py:61 main": 4}}
    lines = [{"kind": "lines", "every_ns": 20 * MS, "first": 0, "last": 39, "places": places}]
    run = one_process(tmp_path, steps, lines=lines)
    assert part_of(run, "update>input").where == "train.py:62 log_images"
    assert "(train.py:62 log_images)" in sentences_of(run)["gaps"]


def test_a_line_that_was_seen_for_longest_is_named_though_another_was_seen_more_often(tmp_path):
    steps = [{**each, "gaps": {"update>input": 30 * MS}, "duration_ns": 95 * MS} for each in plain_steps()]
    for number, each in enumerate(steps):
        each["begin_ns"] = BEGIN + number * 95 * MS
    windows = [("train.py:1 early", 90, 20 * MS), ("train.py:2 late", 10, 1000 * MS)]
    lines = [
        {"kind": "lines", "every_ns": every, "places": {"update>input": {line: samples}}}
        for line, samples, every in windows
    ]
    run = one_process(tmp_path, steps, lines=lines)
    assert part_of(run, "update>input").where == "train.py:2 late"


def passes_without_gradient(folder, took_ms):
    """Write steps that also generate, and the lines that call the module in these passes and in evaluations."""
    steps = plain_steps()
    for number, each in enumerate(steps):
        each["regions"] = {**each["regions"], "nograd": took_ms * MS}
        each["duration_ns"] = (65 + took_ms) * MS
        each["begin_ns"] = BEGIN + number * each["duration_ns"]
    places = {"nograd": {"train.py:9 main, transformers: _sample": 90}}
    return one_process(
        folder, steps, lines=[{"kind": "lines", "every_ns": 20 * MS, "first": 0, "last": 39, "places": places}]
    )


def test_passes_without_gradient_are_a_part_beside_forward_with_the_line_that_calls_them(tmp_path):
    run = passes_without_gradient(tmp_path, 60)
    assert part_of(run, "forward").time_s.value == pytest.approx(0.020)
    own = part_of(run, "no_grad")
    assert (own.time_s.value, own.where) == (pytest.approx(0.060), "train.py:9 main, transformers: _sample")
    sentence = sentences_of(run)["no_grad"]
    assert sentence.startswith("forward passes without gradient, or in evaluation mode, take 60 ms")
    assert sentence.endswith("(train.py:9 main, transformers: _sample)")


def test_few_passes_without_gradient_are_not_worth_a_sentence(tmp_path):
    assert "no_grad" not in sentences_of(passes_without_gradient(tmp_path, 5))


def test_what_is_not_marked_is_the_rest(tmp_path):
    steps = plain_steps()
    for number, each in enumerate(steps):
        each["duration_ns"] += 10 * MS
        each["begin_ns"] = BEGIN + number * 75 * MS
    assert part_of(one_process(tmp_path, steps), "residual").time_s.value == pytest.approx(0.010)


def test_a_single_process_waits_for_nobody(tmp_path):
    run = one_process(tmp_path, plain_steps())
    assert run.waited_for is None
    assert not {"sync_wait", "comm_exposed"} & {part.name for part in run.parts}


def test_an_evaluation_is_no_part_of_a_step(tmp_path):
    found, begin = [], BEGIN
    for number in range(40):
        more = {"apart_ms": 500.0} if number == 20 else {}
        one = step(number, begin, {"forward": 20.0, "backward": 30.0, "update": 5.0}, **more)
        begin += one["duration_ns"]
        found.append(one)
    run = one_process(tmp_path, found)
    assert run.step_s.value == pytest.approx(0.055)
    assert run.left_out == 2


def test_first_steps_that_compile_are_no_part_of_the_mean(tmp_path):
    found, begin = [], BEGIN
    for number in range(60):
        one = step(number, begin, {"forward": 4000.0 if number < 2 else 20.0 + number % 3, "update": 5.0})
        begin += one["duration_ns"]
        found.append(one)
    run = one_process(tmp_path, found)
    assert run.step_s.value == pytest.approx(0.026, rel=0.02)
    assert "the first steps take" in sentences_of(run)["first_steps"]


def test_intervals_know_that_neighbours_hang_together(tmp_path):
    """Of a slowly varying series the interval is several times as wide as of the same values in random order."""
    stream = np.random.default_rng(3)
    slow = 20.0 + np.convolve(stream.normal(size=430), np.ones(31) / 31**0.5, mode="valid")
    widths = []
    for name, series in (("slow", slow), ("shuffled", stream.permutation(slow))):
        found, begin = [], BEGIN
        for number, value in enumerate(series):
            one = step(number, begin, {"forward": float(value), "update": 5.0})
            begin += one["duration_ns"]
            found.append(one)
        time = part_of(one_process(tmp_path / name, found), "forward").time_s
        widths.append(time.high - time.low)
    assert widths[0] > 3.0 * widths[1]


def test_few_steps_have_no_interval(tmp_path):
    run = one_process(tmp_path, plain_steps(3))
    assert run.step_s.value == pytest.approx(0.065)
    assert run.step_s.low is None


def test_a_device_has_times_of_its_own(tmp_path):
    lines = [
        {"kind": "device", "step": number, "regions": {"forward": 44 * MS}, "span_ns": 90 * MS} for number in range(40)
    ]
    run = one_process(tmp_path, plain_steps(), lines=lines)
    assert part_of(run, "forward").device_s == pytest.approx(0.044)
    assert part_of(run, "update").device_s is None


def test_optimizers_that_take_turns_are_a_round(tmp_path):
    steps = [{**each, "optimizers": [0 if each["number"] % 4 < 3 else 1]} for each in plain_steps()]
    assert "a round has 4 updates" in sentences_of(one_process(tmp_path, steps))["optimizer_rounds"]


def test_micro_steps_that_change_for_good_are_found(tmp_path):
    steps = [{**each, "micro_steps": 2 if each["number"] < 12 else 1} for each in plain_steps()]
    run = one_process(tmp_path, steps)
    assert run.micro_steps == 1
    sentence = sentences_of(run)["micro_steps"]
    assert "which changes once, at step 12" in sentence
    assert "12 steps of 2 micro-steps" in sentence


def test_of_two_kinds_of_steps_the_parts_are_of_one(tmp_path):
    """The batch grows fourfold: so do its steps, of which there are fewer."""
    short = [{**each, "micro_steps": 1} for each in plain_steps()[:16]]
    begin = short[-1]["begin_ns"] + short[-1]["duration_ns"]
    regions = {name: 4 * time / MS for name, time in short[0]["regions"].items()}
    length = sum(regions.values())
    long = [step(16 + i, begin + round(i * length * MS), regions, micro_steps=4) for i in range(16)]
    run = one_process(tmp_path, [*short, *long])
    assert (run.steps, run.micro_steps) == (16, 4)
    assert run.step_s.value == pytest.approx(length * 1e-3)
    assert "the parts are of those with 4" in sentences_of(run)["micro_steps"]


def test_replays_of_a_graph_and_eager_steps_are_two_kinds(tmp_path):
    eager = plain_steps(12)
    begin = eager[-1]["begin_ns"] + eager[-1]["duration_ns"]
    replays = [step(12 + i, begin + i * 20 * MS, {"input": 1.0, "replay": 19.0}) for i in range(60)]
    run = one_process(tmp_path, [*eager, *replays])
    assert (run.steps, run.left_out) == (60, 12)
    assert run.step_s.value == pytest.approx(0.020)


def test_the_parts_are_of_all_steps_where_two_kinds_take_turns(tmp_path):
    """As of a network whose every fifth update is followed by that of another."""
    steps, begin = [], 10_000 * MS
    for number in range(60):
        kind = 2 if number % 5 == 4 else 1
        steps.append(step(number, begin, {"forward": 5.0 * kind, "update": 3.0}, micro_steps=kind, samples=8))
        begin += steps[-1]["duration_ns"]
    run = one_process(tmp_path, steps)
    assert (run.steps, run.micro_steps) == (60, None)
    assert run.step_s.value == pytest.approx(0.009)
    assert run.throughput.samples.per_s.value == pytest.approx(8 / 0.009)


def evaluated_steps(every):
    """Return 40 steps of 8 ms, behind every so manieth of which an evaluation lies."""
    found, begin = [], 10_000 * MS
    for number in range(40):
        apart = {"apart_ms": 30.0} if number % every == 0 else {}
        found.append(step(number, begin, {"forward": 5.0, "update": 3.0}, **apart))
        begin += found[-1]["duration_ns"]
    return found


@pytest.mark.parametrize("every", [1, 2, 3])
def test_steps_beside_evaluations_are_kept_where_there_are_few_others(tmp_path, every):
    run = one_process(tmp_path, evaluated_steps(every))
    assert run.steps >= 8
    assert run.step_s.value == pytest.approx(0.008)
    assert any("every step is next to an evaluation" in note for note in run.notes) is (every < 3)


def test_the_rate_names_what_it_leaves_out_beside_nearly_every_step(tmp_path):
    """As the acting of reinforcement learning."""
    run = one_process(tmp_path, evaluated_steps(1))
    assert job_title(run, "evaluation") == "evaluation or acting"
    notes = run_notes(run)
    (note,) = (note for note in notes if note.startswith("note: the rate leaves out"))
    assert "evaluation or acting (passes without gradient) beside 40 of 40 steps: 79 % of the time since step 0" in note


def test_where_few_of_many_steps_are_beside_no_evaluation_they_are_not_shown_alone(tmp_path):
    steps, begin = [], 10_000 * MS
    for number in range(200):
        apart = {} if 90 <= number < 100 else {"apart_ms": 30.0}
        steps.append(step(number, begin, {"forward": 5.0, "update": 3.0}, **apart))
        begin += steps[-1]["duration_ns"]
    assert one_process(tmp_path, steps).steps > 150


def test_of_a_short_run_with_one_evaluation_the_steps_beside_it_are_left_out(tmp_path):
    run = one_process(tmp_path, evaluated_steps(40)[:9])
    assert run.steps <= 7
    assert not any("evaluations lie beside" in note for note in run.notes)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_of_few_steps_with_evaluations_beside_all_some_are_kept(tmp_path, count):
    run = one_process(tmp_path, evaluated_steps(1)[:count])
    assert run.steps >= count - 1
    assert run.step_s.value == pytest.approx(0.008)


def test_the_short_answer_says_for_what_steps_are_left_out(tmp_path):
    run = one_process(tmp_path, evaluated_steps(3))
    note = next(run_notes(run))
    assert f"{run.left_out} left out (27 compiled, incomplete, or beside an evaluation or a checkpoint" in note


def test_all_steps_that_are_left_out_have_a_reason(tmp_path):
    run = one_process(tmp_path, evaluated_steps(3))
    assert sum(run.left_out_for.values()) == run.left_out


def test_nothing_is_said_of_steps_where_none_is_left_out(tmp_path):
    run = one_process(tmp_path, plain_steps()).model_copy(update={"left_out": 0, "left_out_for": {}})
    assert "left out" not in next(run_notes(run))


def test_updates_that_a_scaler_skips_are_counted(tmp_path):
    steps = [
        {**each, **({"flags": ["skipped"]} if each["number"] % 7 == 3 else {"optimizers": [0]})}
        for each in plain_steps()
    ]
    sentences = sentences_of(one_process(tmp_path, steps))
    assert sentences["skipped_updates"] == "6 of 40 steps made no update: GradScaler skipped it"
    assert "optimizer_rounds" not in sentences


def test_a_loader_of_another_thread_is_named_with_the_gap(tmp_path):
    steps = [
        {**step(n, 10_000 * MS + n * 20 * MS, {"forward": 5.0}, {"update>forward": 15.0}), "elsewhere": [1, 14 * MS]}
        for n in range(40)
    ]
    sentence = sentences_of(one_process(tmp_path, steps))["gaps"]
    assert sentence.endswith("another thread asks the loader 70 % of the time, 14 ms for each batch")


def test_a_thread_that_asks_all_the_time_is_what_steps_wait_for(tmp_path):
    steps = [
        {**step(n, 10_000 * MS + n * 20 * MS, {"forward": 5.0}, {"update>forward": 15.0}), "elsewhere": [1, 19 * MS]}
        for n in range(40)
    ]
    run = one_process(tmp_path, steps)
    (advice,) = (finding for finding in script_findings(run) if finding.rule == "own_gap")
    assert "loader_elsewhere" in sentences_of(run)
    assert "num_workers" in advice.change


def test_a_loader_that_starts_anew_in_each_epoch_is_named(tmp_path):
    steps, begin = [], BEGIN
    for number in range(60):
        first = {"epoch": 20.0, "loader_start": 30.0} if number % 10 == 0 else {}
        steps.append(step(number, begin, {**first, "input": 1.0, "forward": 5.0}))
        begin += steps[-1]["duration_ns"]
    run = one_process(tmp_path, steps)
    sentence = sentences_of(run)["loader_starts"]
    assert sentence.endswith("83 % of that in the 5 steps in which an epoch begins")
    (advice,) = (finding for finding in script_findings(run) if finding.rule == "own_input")
    assert "persistent_workers" in advice.change


def test_one_long_first_step_is_no_kind_of_its_own(tmp_path):
    steps = plain_steps()
    early = step(0, steps[0]["begin_ns"] - 5000 * MS, {"forward": 5000.0}, micro_steps=8)
    run = one_process(tmp_path, [early, *[{**each, "number": each["number"] + 1} for each in steps]])
    assert run.micro_steps == 1


def test_a_sentence_about_micro_steps_guesses_no_cause(tmp_path):
    steps = [{**each, "micro_steps": 2 if each["number"] < 12 else 1} for each in plain_steps()]
    assert "?" not in sentences_of(one_process(tmp_path, steps))["micro_steps"]


def trained_in(order):
    """Return steps that update the optimizer which ``order`` gives of a number: 5 ms of the first, 30 of others."""
    steps, begin = [], BEGIN
    for number in range(60):
        optimizer = order(number)
        forward = {"forward": 30.0 if optimizer else 5.0, "backward": 10.0 if optimizer else 5.0}
        steps.append(step(number, begin, forward, optimizers=[optimizer]))
        begin += steps[-1]["duration_ns"]
    return steps


@pytest.mark.parametrize(
    ("order", "begins"),
    [
        (lambda number: number // 10 % 2, "optimizers take turns: a round has 20 updates"),
        (lambda number: int(number >= 30), "steps differ in the optimizers that they update"),
        (lambda number: number % 3 // 2, "optimizers take turns: a round has 3 updates"),
    ],
    ids=["ten each", "one after the other", "every third"],
)
def test_steps_of_models_that_are_trained_in_turns_are_told_apart_by_their_length(tmp_path, order, begins):
    sentence = sentences_of(one_process(tmp_path, trained_in(order)))["optimizer_rounds"]
    assert sentence.startswith(begins)
    assert " of 10 ms" in sentence
    assert " of 40 ms" in sentence


def test_a_round_whose_steps_update_several_optimizers_has_its_updates_counted(tmp_path):
    steps = [{**each, "optimizers": [0] if each["number"] % 5 else [0, 1]} for each in plain_steps()]
    sentence = sentences_of(one_process(tmp_path, steps))["optimizer_rounds"]
    assert sentence.startswith("optimizers take turns: a round has 6 updates in 5 steps and takes")


def test_steps_before_it_is_known_that_optimizers_take_turns_are_no_kind_of_their_own(tmp_path):
    early = {number: {"optimizers": [number % 2], "micro_steps": 1} for number in range(4)}
    later = {"optimizers": [0, 1], "micro_steps": 2}
    steps = [{**each, "flags": ["no_loader"], **early.get(each["number"], later)} for each in plain_steps()]
    assert not {"micro_steps", "optimizer_rounds"} & sentences_of(one_process(tmp_path, steps)).keys()


@pytest.mark.parametrize("parts", [[[0], [0], [0, 1]] * 2, [[0]] * 2, [[0], [0, 0], [1]]], ids=["two", "none", "one"])
def test_parts_of_rounds_before_these_are_known_are_no_kind_of_their_own(tmp_path, parts):
    early = {number: {"optimizers": own, "micro_steps": len(own)} for number, own in enumerate(parts)}
    later = {"optimizers": [0, 0, 0, 1], "micro_steps": 4}
    steps = [{**each, "flags": ["no_loader"], **early.get(each["number"], later)} for each in plain_steps()]
    assert not {"micro_steps", "optimizer_rounds"} & sentences_of(one_process(tmp_path, steps)).keys()


JOINED = {
    "three optimizers": ([[0], [1], [2]] * 2, [0, 1, 2], 2),
    "several updates of one, and one of another": ([[0], [0], [0], [1]] * 2, [0, 0, 0, 1], 2),
    "two together in each third step": ([[0], [0], [0, 1]] * 2, [0, 0, 0, 1], 2),
    "none": ([[0], [1], [1], [0]], [0, 1], 4),
    "no whole round": ([[0], [1], [0]], [0, 1], 3),
}


@pytest.mark.parametrize("name", JOINED)
def test_parts_of_rounds_before_these_are_known_count_as_one_step(tmp_path, name):
    parts, turn, count = JOINED[name]
    early = {number: {"optimizers": own, "micro_steps": len(own)} for number, own in enumerate(parts)}
    later = {"optimizers": turn, "micro_steps": len(turn)}
    steps = [{**each, "flags": ["no_loader"], **early.get(each["number"], later)} for each in plain_steps()]
    write(tmp_path, process_lines(0, 1, steps))
    (process,) = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS).processes
    assert len(process.steps) == len(steps) - len(parts) + count
    assert process.missing_steps == 0
    assert sum(step.duration_ns for step in process.steps) == sum(step["duration_ns"] for step in steps)
    assert sum(step.micro_steps for step in process.steps) == sum(step["micro_steps"] for step in steps)


def test_models_of_equal_steps_one_after_the_other_are_no_finding(tmp_path):
    steps = [{**each, "optimizers": [each["number"] // 20]} for each in plain_steps()]
    assert "optimizer_rounds" not in sentences_of(one_process(tmp_path, steps))


def test_steps_before_it_is_known_that_no_update_is_seen_are_no_kind_of_their_own(tmp_path):
    steps = [{**each, "flags": ["blind"], "micro_steps": 1 if each["number"] else 8} for each in plain_steps()]
    sentences = sentences_of(one_process(tmp_path, steps))
    assert "micro_steps" not in sentences
    assert sentences["update_not_seen"].endswith("steps are counted by requests of batches, the first 8 as one")


def test_an_update_that_was_not_seen_is_said(tmp_path):
    run = one_process(tmp_path, [{**each, "flags": ["blind"]} for each in plain_steps()])
    assert "no update was seen" in sentences_of(run)["update_not_seen"]


@pytest.mark.parametrize(
    ("operations", "weights", "sentence"),
    [
        (0, 4, "torch.compile put 0 operations into 0 graphs"),
        (1, 10, "torch.compile put 1 operation into 1 graph, and the network has 10 arrays of weights"),
        (4, 10, "most of it ran uncompiled; compile it before"),
        (5, 10, None),
        (14, 10, None),
    ],
)
def test_a_network_outside_of_compiled_graphs_is_named(tmp_path, operations, weights, sentence):
    counts = {"operations": operations, "weights": weights, "frames": 2, "graphs": min(1, operations), "breaks": 3}
    found = sentences_of(one_process(tmp_path, plain_steps(), lines=[{"kind": "graphs", **counts}]))
    assert ("uncompiled" in found) == (sentence is not None)
    assert (sentence or "") in found.get("uncompiled", "")


def test_a_fault_of_the_hook_is_said(tmp_path):
    fault = {"kind": "fault", "hook": "Module.__call__", "error": "KeyError('x')", "place": "a.py:1", "step": 3}
    run = one_process(tmp_path, plain_steps(), lines=[fault])
    assert "failed at Module.__call__" in sentences_of(run)["fault"]


def test_steps_of_ddp_without_a_last_gradient_show_no_waiting(tmp_path):
    processes = []
    for rank in range(2):
        steps = ddp_steps(rank, lambda _: [0.0, 15.0])
        for each in steps:
            each["backwards"][0][1] = 0
        processes.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").reason == "no exchange between the ranks was seen"


def test_arithmetic_is_that_of_a_rank_in_a_step(tmp_path):
    counted = {"kind": "flops", "step": 3, "forward": 2 * 10**9, "backward": 4 * 10**9, "operators": {"mm": 6 * 10**9}}
    assert one_process(tmp_path, plain_steps(), lines=[counted]).flops == 6e9


def of_calls(folder, regions, lines=(), first=None):
    """A job of one process, each step with ``regions``, and the first one with ``first``."""
    begin, steps = BEGIN, []
    for number in range(20):
        steps.append(step(number, begin, first if first and number == 0 else regions))
        begin += steps[-1]["duration_ns"]
    return found_in(write(folder, process_lines(0, 1, steps, lines=list(lines))), 20_000.0)


def test_a_step_that_compiled_is_not_among_those_that_the_parts_are_of(tmp_path):
    found = of_calls(tmp_path, {"call": 30.0}, first={"compile": 5000.0})
    assert found.step_s.value == pytest.approx(0.03)
    assert {part.name: part.time_s for part in found.job}["first_steps"] == pytest.approx(4.97)


def test_phases_that_a_library_does_not_show_are_null_with_its_reason_and_the_asking_is_in_the_call(tmp_path):
    unseen = {"kind": "unseen", "phases": ["forward", "update", "sync_wait"], "reason": "an engine runs them later"}
    found = of_calls(tmp_path, {"input": 10.0, "forward": 1.0, "update": 2.0}, [unseen])
    parts = {part.name: part for part in found.parts}
    assert parts["call"].time_s.value == pytest.approx(0.003)
    assert parts["forward"].time_s.value is parts["update"].time_s.value is None
    assert parts["forward"].reason == "an engine runs them later"
    assert "sync_wait" not in parts  # a process that trains alone waits for no other


@pytest.mark.parametrize("regions", [{"input": 1.0}, {"epoch": 1.0}, {"loader_start": 1.0}, {}])
def test_input_that_a_graph_takes_itself_is_named_beside_what_python_asks_for(tmp_path, regions):
    unseen = {"kind": "unseen", "phases": ["input_wait"], "reason": "the graph takes its batches itself"}
    found = of_calls(tmp_path, {**regions, "call": 20.0}, [unseen])
    said = [note for note in found.notes if "the graph takes its batches itself" in note]
    assert len(said) == bool(regions)
    assert [part.reason for part in found.parts if part.name == "input_wait"] == (
        [None] if regions else ["the graph takes its batches itself"]
    )
