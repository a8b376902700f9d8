"""Two versions of a user's own script are compared by their attached runs."""

import json
import shutil
import sys

import pytest
from claims import further_digits, large_percentages, too_wide
from stored_processes import COMMAND, ddp_steps, found_in, process_lines, write
from typer.testing import CliRunner

from steptime.cli.app import app, run_program
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store


def a_run(folder, number, late_ms, *, world=2, script="train.py", samples=8):  # noqa: PLR0913 - what a run is made of
    """Write a run of a script whose ranks are as late in their forward passes; runs follow each other by number."""
    begin_ns = COMMAND + number * 10**10
    store = Store.create(folder, study_text="", study_json={"name": "own script"})
    store.put(
        "attached",
        {
            "command": [sys.executable, script],
            "started_at": f"2026-01-01T00:0{number}:00+00:00",
            "boot": "boot-0",
            "begin_ns": begin_ns,
            "end_ns": begin_ns + 10**10,
            "wall_minus_monotonic_ns": 0,
            "exit_code": 0,
        },
    )
    steps = [ddp_steps(rank, lambda _: [late_ms] * world) for rank in range(world)]
    steps = [[{**step, "samples": samples} for step in own] for own in steps]
    write(folder, *(process_lines(rank, world, own) for rank, own in enumerate(steps)))


@pytest.fixture
def versions(tmp_path):
    """Three runs each, in turns, of a script, of one as quick, and of one whose steps of 40 ms are 8 ms longer."""
    lates_ms = {"old": (0.0, 0.2, 0.4), "same": (0.41, 0.21, 0.01), "slower": (8.0, 8.2, 8.4)}
    for index, (version, lates) in enumerate(lates_ms.items()):
        (tmp_path / version).mkdir()
        for number, late_ms in enumerate(lates):
            a_run(tmp_path / version / str(number), 3 * number + index, late_ms, script=f"{version}.py")
    return tmp_path


def copied(run, copy, **header):
    """Copy a run, with another ``header``."""
    shutil.copytree(run, copy)
    store = Store.open(copy)
    store.put("attached", {**store.get("attached"), **header})


def compared(*arguments):
    return json.loads(CliRunner().invoke(app, ["compare", *map(str, arguments), "--json"]).stdout)


def test_the_ratio_of_two_versions_is_that_of_their_steps(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["ratio"]["value"] == pytest.approx(48.2 / 40.2, rel=0.01)
    assert trial["verdict"] == "slower"


@pytest.mark.parametrize(
    "late_ms",
    [
        lambda step: [4.0 * (step % 2), 4.0 * ((step + 1) % 2)],
        lambda step: [max(0.0, 9.0 - step), 0.3 * (step % 3)],
        lambda step: [1.0, 12.0 * (step % 7 == 0)],
    ],
    ids=["in turns", "warming up", "stalls"],
)
def test_a_step_is_as_long_in_a_comparison_as_in_the_answer_of_its_run(tmp_path, late_ms):
    for run, name in enumerate(("one", "other")):
        a_run(tmp_path / name, run, 0.0)
        steps = [ddp_steps(rank, late_ms, gap=0.2 * run) for rank in range(2)]
        for number, step in enumerate(steps[1]):  # ends of the ranks alternate
            shorter = 300_000 * (number % 2)
            step["duration_ns"] -= shorter
            step["regions"]["update"] -= shorter
        write(tmp_path / name, *(process_lines(rank, 2, own) for rank, own in enumerate(steps)))
    (trial,) = compared(tmp_path / "one", tmp_path / "other")["trials"]

    assert trial["first_step_s"] == pytest.approx(found_in(tmp_path / "one", 60_000.0).step_s.value, rel=1e-9)


def test_versions_that_are_as_quick_show_no_difference(versions):
    (trial,) = compared(versions / "old", versions / "same")["trials"]

    assert trial["verdict"] == "no difference"
    assert trial["smallest_change"] > 0.0


def test_steps_of_other_batches_are_named(tmp_path):
    for number in range(4):
        version = ("old", "new")[number % 2]
        (tmp_path / version).mkdir(exist_ok=True)
        a_run(tmp_path / version / str(number), number, 10.0 * (number % 2), samples=8 + 8 * (number % 2))
    (trial,) = compared(tmp_path / "old", tmp_path / "new")["trials"]
    assert "new: a step has 32 samples, not 16: 640 samples/s, not 400" in json.dumps(trial)


def test_steps_of_equal_batches_are_not(versions):
    assert "samples, not" not in json.dumps(compared(versions / "old", versions / "slower"))


def trained_again(folder, times=1):
    """Add shorter trainings of the same command to a run, behind what it trained."""
    for number in range(1, times + 1):
        steps = ddp_steps(0, lambda _: [1.0], steps=20)
        for each in steps:
            each["begin_ns"] += number * 5 * 10**9
            each["backwards"] = []
        lines = process_lines(0, 1, steps, pid=500 + number, environment={}, program=["again.py"])
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / RECORDS / f"again-{number}.jsonl").write_text(text)


AGAIN = "the command trained {} times; the longest training is compared"


@pytest.mark.parametrize(
    ("times", "flag"),
    [
        ([1, 1, 1], f"slower: {AGAIN.format(2)}"),
        ([1, 3, 2], f"slower: {AGAIN.format('2 to 4')}"),
        ([0, 2, 0], f"slower: 1 of 3 runs: {AGAIN.format(3)}"),
    ],
)
def test_a_comparison_of_one_of_several_trainings_has_a_mark(versions, times, flag):
    for number, again in enumerate(times):
        trained_again(versions / "slower" / str(number), again)

    (trial,) = compared(versions / "old", versions / "slower")["trials"]
    text = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / "slower")]).stdout

    assert [each for each in trial["flags"] if "trained" in each] == [flag]
    assert flag in " ".join(text.split())
    assert trial["ratio"]["value"] == pytest.approx(48.2 / 40.2, rel=0.01)


def test_a_command_that_trained_once_has_no_mark_of_several_trainings(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert not [each for each in trial["flags"] if "trained" in each]


@pytest.mark.parametrize("form", [["--json"], []], ids=["JSON", "text"])
@pytest.mark.parametrize("again", [0, 2])
def test_a_profile_of_one_of_several_trainings_has_a_note(versions, form, again):
    folder = versions / "old" / "0"
    trained_again(folder, again)

    done = CliRunner().invoke(app, ["fit", str(folder), "-o", str(versions / "profile.json"), *form])
    notes = json.loads(done.stdout)["notes"] if form else done.stderr.splitlines()

    several = [note for note in notes if note.startswith("the command trained 3 times, one after the other")]
    assert len(several) == (again > 0)
    assert all("the step and its parts are of number 1" in note for note in several)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("second", ["same", "slower", "slower/0"])
def test_a_comparison_claims_what_its_intervals_allow(versions, second, columns):
    done = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / second)], env={"COLUMNS": columns})

    assert "own script" in done.stdout
    assert not [*too_wide(done.stdout), *large_percentages(done.stdout), *further_digits(done.stdout)]


def test_runs_of_different_numbers_of_ranks_are_refused_with_one_reason(tmp_path):
    a_run(tmp_path / "one", 0, 0.0, world=1)
    a_run(tmp_path / "two", 1, 0.0, world=2)
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "one"), str(tmp_path / "two")])

    assert str(done.exception).count("has no such trial") == 1


def test_a_slower_version_fails_a_threshold(versions):
    assert run_program(["compare", str(versions / "old"), str(versions / "slower"), "--fail-over", "5%"]) == 1


def test_the_changed_command_is_named(versions):
    found = compared(versions / "old", versions / "slower")["software"]

    assert ["old.py" in each["first"] and "slower.py" in each["second"] for each in found if each["fact"] == "command"]


def test_single_runs_give_a_ratio_and_no_verdict(versions):
    (trial,) = compared(versions / "old" / "0", versions / "slower" / "0")["trials"]

    assert trial["verdict"] == "undecided"


def test_runs_on_other_numbers_of_processes_are_not_compared(versions):
    a_run(versions / "alone", 0, 0.0, world=1)

    assert run_program(["compare", str(versions / "old"), str(versions / "alone")]) == 2


@pytest.mark.parametrize(
    "header",
    [{}, {"started_at": "2026-01-09T00:00:00+00:00"}, {"begin_ns": COMMAND + 10**14}, {"boot": "boot-9"}],
    ids=lambda header: next(iter(header), "whole"),
)
def test_a_copied_run_counts_once(versions, header):
    copied(versions / "old" / "1", versions / "old" / "copy", **header)
    copied(versions / "old" / "1", versions / "old" / "again", **header)

    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["launches"] == [3, 3]
    assert "2 of 5 runs left out: copies of others" in trial["flags"]


def test_a_side_of_copies_of_the_other_side_is_refused(versions, capsys):
    copied(versions / "old" / "1", versions / "old-again" / "0")

    assert run_program(["compare", str(versions / "old"), str(versions / "old-again")]) == 2
    assert "copied; record runs of its own" in capsys.readouterr().err


def test_a_run_that_was_copied_to_the_other_side_counts_on_one(versions):
    copied(versions / "old" / "1", versions / "slower" / "copy")

    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["launches"] == [3, 3]
    assert "1 of 4 runs left out: copies of others" in trial["flags"]
