"""Sweeps of small commands: their plan, order, budget, what is kept and what is refused."""

import json

import pytest
from program import steptime
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.errors import StoreError, UsageError
from steptime.execution.progress import Silent
from steptime.sweep.plan import STORED, plan_of, read_plan, require_same
from steptime.sweep.runs import run_sweep, sweep_store

COMMAND = ["sh", "-c", "exit {code}", "{workers}"]


def plan(*, counts=("1", "2"), codes=("0",), repeats=2, command=COMMAND):
    return read_plan(command, {"workers": counts, "code": codes}, repeats)


def run(one, folder, budget_s=None, clock=None):
    store = sweep_store(one, folder)
    with store.lock():
        store.put(STORED, one.to_json())
        return run_sweep(one, store, budget_s, Silent(), **({"clock": clock} if clock else {}))


def test_every_round_has_each_setting_once(tmp_path):
    runs = plan(counts=("1", "2", "4"), repeats=3).runs(tmp_path)
    rounds = [[each.setting.workers for each in runs if each.number == number] for number in (1, 2, 3)]
    assert [each.number for each in runs] == [1] * 3 + [2] * 3 + [3] * 3
    assert [sorted(each) for each in rounds] == [[1, 2, 4]] * 3
    assert len({tuple(each) for each in rounds}) > 1


def test_placeholders_are_replaced_and_other_braces_stay():
    setting = read_plan(["echo", "{workers}x{other}", "${HOME}"], {"workers": ["2"]}, 1).settings[0]
    assert setting.words(["echo", "{workers}x{other}", "${HOME}"]) == ["echo", "2x{other}", "${HOME}"]


MISTAKES = {
    "no command": ([], {"workers": ["1"]}, "give a command"),
    "no place for the workers": (["python", "t.py"], {"workers": ["1"]}, "has no {workers}"),
    "a count that is a word": (["t", "{workers}"], {"workers": ["two"]}, "--counts: 'two'"),
    "no worker": (["t", "{workers}"], {"workers": ["0"]}, "--counts: '0'"),
    "a count twice": (["t", "{workers}"], {"workers": ["1", "1"]}, "more than once"),
    "no value": (["t", "{workers}"], {"workers": []}, "--counts has no value"),
    "a value without a place": (["t", "{workers}"], {"workers": ["1"], "batch": ["8"]}, "--set batch has no place"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_plan_that_cannot_be_is_refused_with_the_next_step(name):
    command, axes, message = MISTAKES[name]
    with pytest.raises(UsageError, match="(?s)" + message.replace("{", r"\{")):
        read_plan(command, axes, 1)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (plan(counts=("1", "2", "4")), "--counts is 1,2, and not 1,2,4"),
        (plan(codes=("0", "1")), "--set code= is 0, and not 0,1"),
        (plan(command=["sh", "-c", "exit {code}", "again", "{workers}"]), "its command is"),
    ],
)
def test_another_sweep_in_the_folder_is_refused_by_its_difference(tmp_path, other, difference):
    with pytest.raises(StoreError, match=difference):
        require_same(plan(), other, tmp_path)


def test_more_repeats_are_the_same_sweep(tmp_path):
    require_same(plan(), plan(repeats=5), tmp_path)
    assert plan_of(plan().to_json(), tmp_path) == plan()


def test_runs_that_ended_are_kept_and_more_repeats_go_on(tmp_path):
    folder = tmp_path / "sweep"
    assert run(plan(repeats=1), folder).done == 2
    before = [json.loads(path.read_text())["begin_ns"] for path in sorted(folder.glob("runs/*/1/attached.json"))]
    assert run(plan(repeats=1), folder).done == 2
    after = [json.loads(path.read_text())["begin_ns"] for path in sorted(folder.glob("runs/*/1/attached.json"))]
    assert before == after


def test_a_setting_that_fails_is_named_and_the_others_go_on(tmp_path):
    outcome = run(plan(counts=("1",), codes=("0", "3"), repeats=2), tmp_path / "sweep")
    assert outcome.done == 2
    assert list(outcome.failed) == ["workers=1,code=3"]
    assert "exit code 3" in outcome.failed["workers=1,code=3"]


def test_no_run_begins_that_would_end_behind_the_budget(tmp_path):
    times = iter(range(0, 1000, 4))  # every look at the clock is four seconds later
    outcome = run(plan(counts=("1",), repeats=4), tmp_path / "sweep", 10.0, lambda: next(times))
    assert (outcome.done, [left.number for left in outcome.left]) == (1, [2, 3, 4])


def test_a_folder_of_other_results_is_refused(tmp_path):
    folder = tmp_path / "results"
    (folder / "trials").mkdir(parents=True)
    with pytest.raises(StoreError):
        sweep_store(plan(), folder)


def test_a_dry_run_prints_the_runs_in_their_order_and_starts_none(tmp_path):
    arguments = ["sweep", "--counts", "1,2", "--repeats", "1", "--dry-run", "-o", str(tmp_path / "s")]
    result = CliRunner().invoke(app, [*arguments, "--", "touch", str(tmp_path / "made-{workers}")])
    assert result.exit_code == 0, result.output
    assert [line.split()[-1][-1] for line in result.stdout.splitlines()[1:]] in (["1", "2"], ["2", "1"])
    assert list(tmp_path.iterdir()) == []


def test_all_mistakes_of_a_sweep_are_named_at_once(tmp_path):
    text = steptime(
        "sweep", "--counts", "x", "--price", "2", "--stop-after", "3", "--", "true", cwd=tmp_path, check=2
    ).stderr
    assert all(each in text for each in ("--counts: 'x'", "--samples N", "--stop-after 3", "has no {workers}"))
