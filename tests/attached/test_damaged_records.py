"""Records of another process are data: what is damaged or made up is set aside, and no name reaches a terminal raw."""

import json

import pytest
from stored_processes import MS, ddp_steps, found_in, process_lines, write

from steptime.cli.console import PlainConsole
from steptime.errors import StoreError
from steptime.report.attached_answer import AttachedAnswer
from steptime.results.gpu_windows import RECORDS


def lines_of_one():
    return process_lines(0, 1, ddp_steps(0, lambda _: [0.0], steps=30))


def test_a_last_line_that_was_cut_is_left_out(tmp_path):
    write(tmp_path, lines_of_one())
    file = tmp_path / RECORDS / "host-0.jsonl"
    file.write_bytes(file.read_bytes()[:-200])
    run = found_in(tmp_path)
    assert run.problems == []
    assert run.ranks[0].steps in {29, 30}
    assert not run.ranks[0].ended


def test_keys_and_kinds_that_are_not_known_are_left_out(tmp_path):
    lines = lines_of_one()
    lines[3]["of_tomorrow"] = {"a": 1}
    lines.insert(2, {"kind": "of_tomorrow", "x": [1]})
    run = found_in(write(tmp_path, lines))
    assert (run.problems, run.ranks[0].steps) == ([], 30)


IMPLAUSIBLE = {
    "a negative time": ({"duration_ns": -5}, "duration_ns"),
    "a number for a flag": ({"backwards": [[1, 2, 3, 1]]}, "backwards"),
    "text for a number": ({"micro_steps": "1"}, "micro_steps"),
    "a pass that ends before it begins": ({"backwards": [[9, 0, 3, True]]}, "ends before it begins"),
    "a collective that ends before it begins": ({"intervals": [["wait", 0, 9, 3]]}, "ends before it begins"),
    "a step before the one before": ({"begin_ns": 5}, "does not follow"),
    "an infinite number": ({"duration_ns": 10**30}, "duration_ns"),
    "evaluation outside of the step": ({"apart": {"begin_ns": 1, "end_ns": 2}}, "apart"),
}


@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_what_cannot_be_is_set_aside_with_its_line(tmp_path, name):
    changes, said = IMPLAUSIBLE[name]
    lines = lines_of_one()
    lines[10].update(changes)
    run = found_in(write(tmp_path, lines))
    assert run.ranks[0].steps == 29
    assert len(run.problems) == 1
    assert "line 11" in run.problems[0]
    assert said in run.problems[0]


@pytest.mark.parametrize("table", ["regions", "gaps"])
def test_a_step_whose_parts_exceed_it_counts_as_a_whole_and_in_no_part(tmp_path, table):
    lines = lines_of_one()
    whole = found_in(write(tmp_path / "whole", lines))
    lines[10].update({table: {"forward": 10**12}})
    run = found_in(write(tmp_path / "long", lines))
    assert (run.ranks[0].steps, run.problems) == (30, [])
    assert run.steps == whole.steps - 1
    assert run.notes == ["1 step counts as a whole: its parts exceed it"]
    assert {part.name: round(part.time_s.value, 9) for part in run.parts} == {
        part.name: round(part.time_s.value, 9) for part in whole.parts
    }


def test_steps_of_which_none_can_be_divided_have_their_length(tmp_path):
    lines = lines_of_one()
    for line in lines:
        if line["kind"] == "step":
            line["regions"] = {"forward": 10**12}
    run = found_in(write(tmp_path, lines))
    assert run.step_s.value == pytest.approx(lines[20]["duration_ns"] * 1e-9, rel=0.2)
    assert [part.name for part in run.parts if part.time_s.value] == ["residual"]


def test_a_file_that_does_not_begin_with_its_process_is_set_aside(tmp_path):
    run = found_in(write(tmp_path, lines_of_one()[1:]))
    assert run.ranks == []
    assert "first line" in run.problems[0]


def test_records_of_a_newer_steptime_are_refused(tmp_path):
    lines = lines_of_one()
    lines[0]["format"] = 99
    with pytest.raises(StoreError, match="format 99"):
        found_in(write(tmp_path, lines))


def test_a_link_in_the_place_of_a_record_is_refused(tmp_path):
    write(tmp_path, lines_of_one())
    (tmp_path / "elsewhere").write_text("secret")
    (tmp_path / RECORDS / "x.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        found_in(tmp_path)


def test_control_characters_of_a_script_reach_no_terminal(tmp_path, capsys):
    name = "evil\x1b]0;title\x07\u202e.py:1 main"
    lines = process_lines(0, 1, ddp_steps(0, lambda _: [0.0], gap=30.0))
    lines.insert(1, {"kind": "lines", "every_ns": MS, "places": {"forward>backward": {name: 50}}})
    lines.insert(1, {"kind": "note", "text": name})
    lines[0]["host"] = name
    PlainConsole(width=120).print(AttachedAnswer(found_in(write(tmp_path, lines), 9_000.0)))
    shown = capsys.readouterr().out
    assert "evil" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_no_files_are_no_run(tmp_path):
    run = found_in(tmp_path, not_attached="because")
    assert (run.not_attached, run.world, run.parts) == ("because", 0, [])


def test_processes_that_did_not_train_are_named_by_their_libraries(tmp_path):
    (tmp_path / RECORDS).mkdir()
    seen = "12 torch sitecustomize\n13 torch sitecustomize\n13 without-step nograd=50 jit=x other=3\n"
    (tmp_path / RECORDS / "seen-host.txt").write_text(seen)
    said = found_in(tmp_path).not_attached
    assert "(torch)" in said
    assert said.endswith("seen: 50 forward passes without gradient, or in evaluation mode")


def test_the_records_are_json(tmp_path):
    run = found_in(write(tmp_path, lines_of_one()), 9_000.0)
    assert json.loads(json.dumps(run.to_json()))["schema"] == 3
