"""What makes numbers other than they seem comes first: a failed command, several trainings, a record with holes."""

import json

import pytest
from stored_processes import BEGIN, MS, ddp_steps, found_in, process_lines, sentences_of, step, write

from steptime.attached.user_command import script_of
from steptime.cli.console import PlainConsole
from steptime.diagnosis.form import Diagnosis
from steptime.diagnosis.rules import script_findings
from steptime.report.advice import script_section
from steptime.report.attached import attached_section, headline
from steptime.report.attached_answer import AttachedAnswer
from steptime.report.terminal import SectionText
from steptime.results.gpu_windows import RECORDS


def plain_steps(count, begin_ms=0.0, input_ms=20.0):
    length = round((input_ms + 20.0) * MS)
    regions = {"input": input_ms, "forward": 5.0, "backward": 8.0, "update": 7.0}
    return [step(n, BEGIN + round(begin_ms * MS) + n * length, regions) for n in range(count)]


def trained(begin_ms, pid, steps=30, **more):
    """The lines of a training of one process."""
    return process_lines(0, 1, plain_steps(steps, begin_ms), pid=pid, environment={}, **more)


ARRANGED = {
    "one after the other": [0.0, 5000.0],
    "side by side": [0.0, 10.0],
    "partly side by side": [0.0, 300.0, 9000.0],
}


@pytest.mark.parametrize("name", ARRANGED)
def test_trainings_are_counted_and_never_called_a_restart(tmp_path, name):
    begins = ARRANGED[name]
    files = [trained(at, 7 + n, program=["/a/b/one.py", f"0.{n}"], parent=3) for n, at in enumerate(begins)]
    run = found_in(write(tmp_path, *files), 60_000.0)
    assert f"the command trained {len(begins)} times, {name}" in sentences_of(run)["trainings"]
    assert run.findings[0].kind == "trainings"
    assert "restart" not in {part.name for part in run.job}
    assert [each.program for each in run.trainings] == [f"one.py 0.{n}" for n in range(len(begins))]


def test_the_time_before_several_trainings_is_not_called_that_of_one(tmp_path):
    files = [trained(at, 7 + n, program=[f"{n}.py"]) for n, at in enumerate([0.0, 5000.0])]
    run = found_in(write(tmp_path, *files), 60_000.0)
    assert "pass before the first step of each training, " in sentences_of(run)["start_up"]


def test_each_training_is_shown_in_short_and_one_whole(tmp_path):
    files = [trained(0.0, 7, 10, program=["a.py"]), trained(5000.0, 8, 30, program=["b.py"])]
    run = found_in(write(tmp_path, *files), 60_000.0)
    assert [(each.program, each.steps, each.shown) for each in run.trainings] == [
        ("a.py", 10, False),
        ("b.py", 30, True),
    ]
    assert run.trainings[0].step_s.value == pytest.approx(0.040)
    assert "a.py (10 steps of 40 ms)" in sentences_of(run)["trainings"]
    console = PlainConsole(width=100)
    with console.capture() as shown:
        console.print(SectionText([attached_section(run)]))
    assert "Trainings" in shown.get()


def test_jobs_of_several_ranks_side_by_side_are_told_apart_by_their_ports(tmp_path):
    """The processes of both come in any order."""
    files = []
    for rank, port in ((0, 1), (1, 2), (1, 1), (0, 2)):
        environment = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
        steps = ddp_steps(rank, lambda _: [0.0, 0.0], steps=20 + port)
        files.append(process_lines(rank, 2, steps, pid=10 * port + rank, environment=environment))
    run = found_in(write(tmp_path, *files))
    assert [(each.ranks, each.steps) for each in run.trainings] == [(2, 21), (2, 22)]


RESTARTS = {
    "by torchrun": ({"pid": 8, "attempt": 1, "parent": 3}, {"pid": 7, "parent": 3}),
    "by exec": ({"pid": 7}, {"pid": 7}),
}


@pytest.mark.parametrize("name", RESTARTS)
def test_a_training_that_was_started_anew_is_one(tmp_path, name):
    later, first = RESTARTS[name]
    steps = plain_steps(30, 5000.0)
    files = [
        process_lines(0, 1, plain_steps(10), ended=False, **first),
        process_lines(0, 1, steps, **later),
    ]
    run = found_in(write(tmp_path, *files), 60_000.0)
    assert run.trainings == []
    assert "restarted 1 time" in sentences_of(run)["restart"]


def test_an_attempt_of_another_launcher_is_no_restart(tmp_path):
    files = [
        process_lines(0, 1, plain_steps(10), ended=False, pid=7, parent=3),
        process_lines(0, 1, plain_steps(30, 5000.0), pid=8, parent=4, attempt=1),
    ]
    assert len(found_in(write(tmp_path, *files), 60_000.0).trainings) == 2


def failing(folder, code, *lines, trains=True):
    """Write a command that failed, with what its processes wrote about it, and return what is found."""
    write(folder, *([trained(0.0, 7)] if trains else []))
    text = "".join(
        json.dumps({"at_ns": at, "type": kind, "error": error, "place": place}) + "\n"
        for at, kind, error, place in lines
    )
    (folder / RECORDS / "failed-host.txt").write_text(text + "{cut")
    return found_in(folder, 60_000.0, exit_code=code)


ERROR = (9, "ValueError", "ValueError: no such class: 7", "train.py:12 main")
LAUNCHER = (3, "ChildFailedError", "traceback : To enable traceback see …", "")


def test_a_failed_command_begins_with_its_exit_code_and_error(tmp_path):
    run = failing(tmp_path, 1, ERROR)
    assert run.findings[0].kind == "failed"
    said = "the command failed with exit code 1: ValueError: no such class: 7 (train.py:12 main)"
    assert run.findings[0].sentence == said


@pytest.mark.parametrize(
    "lines", [(LAUNCHER, ERROR), (ERROR, LAUNCHER), (ERROR, (11, "OSError", "OSError: closed", ""))]
)
def test_the_first_error_of_the_script_itself_is_named(tmp_path, lines):
    assert "no such class" in failing(tmp_path, 1, *lines).findings[0].sentence


def test_a_command_that_failed_before_a_step_begins_with_its_error(tmp_path):
    run = failing(tmp_path, 2, ERROR, trains=False)
    assert [each.kind for each in run.findings] == ["failed"]
    console = PlainConsole(width=80)
    with console.capture() as shown:
        console.print(AttachedAnswer(run))
    first, second, *_ = shown.get().splitlines()
    assert "no step was seen" in first
    assert second.startswith("The command failed with exit code 2: ValueError")


def test_a_signal_is_named(tmp_path):
    assert "SIGKILL ended the command" in failing(tmp_path, 137).findings[0].sentence


def test_without_an_error_the_output_of_the_command_has_it(tmp_path):
    assert "what it wrote itself has the reason" in failing(tmp_path, 3).findings[0].sentence


def test_errors_of_a_command_that_ended_well_are_its_own(tmp_path):
    assert "failed" not in sentences_of(failing(tmp_path, 0, ERROR))


def test_every_second_step_that_is_missing_is_counted(tmp_path):
    lines = trained(0.0, 7, 150)
    kept = [line for line in lines if line["kind"] != "step" or line["number"] % 2 == 0]
    said = sentences_of(found_in(write(tmp_path, kept)))["incomplete_record"]
    assert "75 steps of the process are not on record, and 75 are" in said


def test_a_hole_in_a_record_is_counted(tmp_path):
    lines = trained(0.0, 7, 150)
    kept = [line for line in lines if line["kind"] != "step" or not 40 <= line["number"] < 60]
    assert "20 steps" in sentences_of(found_in(write(tmp_path, kept)))["incomplete_record"]


def test_the_last_steps_that_are_missing_before_an_end_are_counted(tmp_path):
    lines = trained(0.0, 7, 150)
    kept = [line for line in lines if line["kind"] != "step" or line["number"] < 74]
    assert "76 steps" in sentences_of(found_in(write(tmp_path, kept)))["incomplete_record"]


def test_a_record_that_is_cut_in_its_middle_is_told(tmp_path):
    write(tmp_path, trained(0.0, 7, 150))
    file = tmp_path / RECORDS / "host-0.jsonl"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    said = sentences_of(found_in(tmp_path))["incomplete_record"]
    assert "the record of the process has no end: it reaches step 7" in said


def test_steps_that_are_summed_are_on_record(tmp_path):
    lines = trained(0.0, 7, 40)
    summed = {"kind": "steps", "first": 11, "last": 19, "begin_ns": lines[12]["begin_ns"], "duration_ns": 9 * 40 * MS}
    kept = [line for line in lines if line["kind"] != "step" or not 11 <= line["number"] <= 19]
    kept.insert(12, summed)
    assert "incomplete_record" not in sentences_of(found_in(write(tmp_path, kept)))


def test_counts_of_one_are_in_the_singular(tmp_path):
    lines = [*process_lines(0, 1, plain_steps(1), ended=False), {"kind": "end", "steps": 2, "at_ns": BEGIN, "lost": 1}]
    lines[1]["regions"]["forward"] = 10 * lines[1]["duration_ns"]
    run = found_in(write(tmp_path / "one", lines), 9_000.0)
    assert sentences_of(run)["incomplete_record"].startswith("1 step of the process is not on record, and 1 is:")
    assert run.notes == [
        "1 step shows no interval: at least 7 more are needed",
        "1 line could not be written: the disk was full, or the folder gone",
        "1 step counts as a whole: its parts exceed it",
    ]


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ("forward=1", "1 forward pass and no backward pass"),
        ("nograd=1", "1 forward pass without gradient, or in evaluation mode"),
        ("nograd=2", "2 forward passes without gradient, or in evaluation mode"),
        ("jit=1", "1 call of jitted functions"),
    ],
)
def test_what_a_process_did_that_never_trained_is_counted_in_the_right_number(tmp_path, calls, shown):
    (tmp_path / RECORDS).mkdir()
    (tmp_path / RECORDS / "seen-host.txt").write_text(f"7 torch sitecustomize\n7 without-step {calls}\n")
    assert shown in found_in(tmp_path).not_attached


def test_a_graph_of_one_operation_is_in_the_singular(tmp_path):
    graphs = {"kind": "graphs", "frames": 1, "operations": 1, "graphs": 1, "breaks": 0, "weights": 3}
    run = found_in(write(tmp_path, process_lines(0, 1, plain_steps(20), lines=[graphs])), 9_000.0)
    assert "put 1 operation into 1 graph, and the network has 3 arrays" in sentences_of(run)["uncompiled"]


def test_a_whole_record_is_not_called_incomplete(tmp_path):
    assert "incomplete_record" not in sentences_of(found_in(write(tmp_path, trained(0.0, 7, 40))))


SCRIPTS = {
    "python -m torch.distributed.run --nproc-per-node 2 a/train.py --lr 1": "a/train.py",
    "torchrun train.py other.py": "train.py",
    "python -m torch.distributed.run -m my.train": "my.train",
    "accelerate launch -m my.train": "my.train",
    "python -m my.train --lr 1": "my.train",
    "/usr/bin/mytrain": "/usr/bin/mytrain",
}


@pytest.mark.parametrize("command", SCRIPTS)
def test_the_script_of_a_command_is_its_own_name(command):
    assert script_of(command.split())[1] == SCRIPTS[command]


def test_a_headline_has_the_script_behind_a_long_launcher(tmp_path):
    command = "python -m torch.distributed.run --nproc-per-node 2 --master-port 29501 --tee 3 examples/train.py --lr 1"
    run = found_in(write(tmp_path, trained(0.0, 7))).model_copy(update={"command": command.split()})
    assert headline(run).startswith("python … train.py --lr 1, one process")


LINES = {
    "a library at work": ({"train.py:9 main, transformers: log": 9, "train.py:9 main": 1}, "work of transformers"),
    "the script itself": ({"/a, b/train.py:9 main": 9}, "code of the script"),
    "no sample": ({}, ": code that nothing marks"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_gap_is_called_the_script_s_code_only_where_it_is(tmp_path, name):
    samples, words = LINES[name]
    steps = [step(n, BEGIN + n * 40 * MS, {"forward": 20.0}, {"update>input": 20.0}) for n in range(30)]
    places = {"update>input": samples} if samples else {}
    lines = [{"kind": "lines", "every_ns": 20 * MS, "places": places}]
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=lines)))
    assert words in sentences_of(run)["gaps"]


def test_samples_of_one_line_in_several_functions_count_together(tmp_path):
    samples = {"train.py:9 main, keras: a": 3, "train.py:9 main, keras: b": 4, "train.py:20 log": 5}
    steps = [step(n, BEGIN + n * 40 * MS, {"forward": 20.0}, {"update>input": 20.0}) for n in range(30)]
    lines = [{"kind": "lines", "every_ns": 20 * MS, "places": {"update>input": samples}}]
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=lines)))
    assert "(train.py:9 main, keras: b)" in sentences_of(run)["gaps"]


def advised(run):
    """Return what advice on a run begins with."""
    found = Diagnosis(findings=script_findings(run))
    return " ".join(script_section(run, found).parts[0].texts)


def test_advice_on_a_command_that_failed_before_a_step_says_that_nothing_was_measured(tmp_path):
    said = advised(failing(tmp_path, 2, ERROR, trains=False))
    assert said.startswith("The command failed with exit code 2: ValueError: no such class: 7 (train.py:12 main). ")
    assert "No step was measured, so no rule had anything to look at: " in said


def test_advice_on_a_command_that_failed_later_says_how_many_steps_it_rests_on(tmp_path):
    run = failing(tmp_path, 1, ERROR)
    assert f"{run.steps} steps measured before that." in advised(run)


def test_advice_on_a_command_that_trained_nothing_says_why_nothing_is_known(tmp_path):
    said = advised(failing(tmp_path, 0, trains=False))
    assert said.startswith("No step was measured, so no rule had anything to look at: ")


def test_advice_on_a_good_run_without_a_finding_says_on_how_many_steps(tmp_path):
    run = failing(tmp_path, 0)
    (limits,) = script_section(run, Diagnosis()).parts
    assert limits.texts == [f"No rule found anything in the {run.steps} steps measured."]
